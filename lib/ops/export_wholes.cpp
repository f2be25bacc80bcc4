// SPDX-License-Identifier: Apache-2.0
#include "ops/export_wholes.hpp"

#include "core/pipeline.hpp"
#include "os/aligned_buffer.hpp"

#include <algorithm>
#include <utility>

namespace ckpt::ops {
namespace {

/// Large enough that most blocks in it are read as a whole.
constexpr std::uint64_t slab_bytes = 16U << 20U;
/// More don't make a device faster.
constexpr unsigned most_readers = 8;

struct Slab {
  std::size_t number = 0;
  Box box;
};

/// Cuts a tensor into boxes that follow each other in row-major order.
void cut_in_order(const GlobalTensor& tensor, std::size_t number, std::vector<Slab>& into) {
  const Box all = whole_of(tensor.shape);
  const std::uint64_t bits = bits_of(tensor.dtype);
  if (all.shape.empty() || bits % 8 != 0 || volume_of(all) * bits / 8 <= slab_bytes) {
    into.push_back({.number = number, .box = all});
    return;
  }
  // The outermost dimension that a slab cuts: all within it fits one.
  std::size_t cut = all.shape.size() - 1;
  std::uint64_t inside = bits / 8;
  const auto length = [&](std::size_t d) { return static_cast<std::uint64_t>(all.shape[d]); };
  while (cut > 0 && inside <= slab_bytes / length(cut)) inside *= length(cut--);
  const auto step = static_cast<std::int64_t>(std::max<std::uint64_t>(1, slab_bytes / inside));
  Box box = all;
  for (std::size_t d = 0; d < cut; ++d) box.shape[d] = 1;
  while (true) {
    for (std::int64_t at = 0; at < all.shape[cut]; at += step) {
      box.offsets[cut] = at;
      box.shape[cut] = std::min(step, all.shape[cut] - at);
      into.push_back({.number = number, .box = box});
    }
    std::size_t d = cut;
    while (d > 0 && ++box.offsets[d - 1] == all.shape[d - 1]) box.offsets[--d] = 0;
    if (d == 0) return;
  }
}

class SlabReader {
 public:
  SlabReader(const GlobalTensors& tensors, const Monitor& monitor) : tensors_(tensors), monitor_(monitor) {}

  struct Read {
    Pool<os::AlignedBuffer>::Lease buffer;
    ByteView bytes;
  };
  [[nodiscard]] Read read(const GlobalTensor& tensor, const Box& box) {
    Read read{.buffer = buffers_.take(), .bytes = {}};
    const auto size = static_cast<std::size_t>((volume_of(box) * bits_of(tensor.dtype) + 7) / 8);
    read.buffer->reserve(size);
    tensors_.read(tensor, box, contiguous_strides(box.shape), read.buffer->data(), 1, monitor_);
    read.bytes = ByteView(read.buffer->data(), size);
    return read;
  }

 private:
  const GlobalTensors& tensors_;
  const Monitor& monitor_;
  Pool<os::AlignedBuffer> buffers_;
};

}  // namespace

void stream_wholes(const GlobalTensors& tensors, const std::vector<const ExportItem*>& items, unsigned jobs,
                   const Monitor& monitor, const std::function<void(std::size_t number, ByteView)>& consume) {
  std::vector<Slab> slabs;
  for (std::size_t i = 0; i < items.size(); ++i) cut_in_order(tensors.all()[items[i]->whole], i, slabs);
  SlabReader reader(tensors, monitor);
  const unsigned threads = std::min(reader_count(jobs), std::max(most_readers, jobs));
  run_ordered(
      slabs.size(), threads, std::size_t{threads} + 2,
      [&](std::size_t i) { return reader.read(tensors.all()[items[slabs[i].number]->whole], slabs[i].box); },
      [&](std::size_t i, const SlabReader::Read& read) { consume(slabs[i].number, read.bytes); });
}

bool are_the_same(const GlobalTensors& tensors, const GlobalTensor& a, const GlobalTensor& b, const Monitor& monitor) {
  if (a.dtype != b.dtype || a.layout != b.layout || a.shape != b.shape) return false;
  std::vector<Slab> slabs;
  cut_in_order(a, 0, slabs);
  SlabReader reader(tensors, monitor);
  return std::all_of(slabs.begin(), slabs.end(), [&](const Slab& slab) {
    const auto x = reader.read(a, slab.box);
    const auto y = reader.read(b, slab.box);
    return std::equal(x.bytes.begin(), x.bytes.end(), y.bytes.begin());
  });
}

}  // namespace ckpt::ops

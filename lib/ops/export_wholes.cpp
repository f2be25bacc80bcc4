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

/// A tensor as boxes that follow each other in row-major order.
class Slabs {
 public:
  explicit Slabs(const GlobalTensor& tensor) : all_(whole_of(tensor.shape)) {
    const std::uint64_t bits = bits_of(tensor.dtype);
    if (all_.shape.empty() || bits % 8 != 0 || volume_of(all_) <= slab_bytes / (bits / 8)) return;
    // The outermost dimension that a slab cuts: all within it fits one.
    cut_ = all_.shape.size() - 1;
    std::uint64_t inside = bits / 8;
    while (cut_ > 0 && inside <= slab_bytes / length(cut_)) inside *= length(cut_--);
    step_ = std::max<std::uint64_t>(1, slab_bytes / inside);
    in_a_row_ = (length(cut_) + step_ - 1) / step_;
    count_ = in_a_row_;
    for (std::size_t d = 0; d < cut_; ++d) count_ *= length(d);
  }

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] Box at(std::uint64_t index) const {
    Box box = all_;
    if (step_ == 0) return box;
    const std::uint64_t begin = index % in_a_row_ * step_;
    box.offsets[cut_] = static_cast<std::int64_t>(begin);
    box.shape[cut_] = static_cast<std::int64_t>(std::min(step_, length(cut_) - begin));
    index /= in_a_row_;
    for (std::size_t d = cut_; d-- > 0; index /= length(d)) {
      box.offsets[d] = static_cast<std::int64_t>(index % length(d));
      box.shape[d] = 1;
    }
    return box;
  }

 private:
  [[nodiscard]] std::uint64_t length(std::size_t d) const { return static_cast<std::uint64_t>(all_.shape[d]); }

  Box all_;
  std::size_t cut_ = 0;
  std::uint64_t step_ = 0;  ///< along the dimension that's cut; 0: one slab is all of it
  std::uint64_t in_a_row_ = 1;
  std::uint64_t count_ = 1;
};

class SlabReader {
 public:
  SlabReader(const GlobalTensors& tensors, const Monitor& monitor) : tensors_(tensors), monitor_(monitor) {}

  struct Read {
    Pool<os::AlignedBuffer>::Lease buffer;
    ByteView bytes;
  };
  [[nodiscard]] Read read(const GlobalTensor& tensor, const Box& box) {
    Read read{.buffer = buffers_.take(), .bytes = {}};
    const auto size = static_cast<std::size_t>(bytes_of(volume_of(box), tensor.dtype));
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
  std::vector<Slabs> slabs;
  std::vector<std::uint64_t> firsts;  // of each item: how many slabs come before
  std::uint64_t count = 0;
  for (const ExportItem* item : items) {
    slabs.emplace_back(tensors.all()[item->whole]);
    firsts.push_back(count);
    count += slabs.back().count();
  }
  const auto number_of = [&](std::uint64_t slab) {
    return static_cast<std::size_t>(std::upper_bound(firsts.begin(), firsts.end(), slab) - firsts.begin()) - 1;
  };
  SlabReader reader(tensors, monitor);
  const unsigned threads = std::min(reader_count(jobs), std::max(most_readers, jobs));
  run_ordered(
      count, threads, std::size_t{threads} + 2,
      [&](std::size_t i) {
        const std::size_t n = number_of(i);
        return reader.read(tensors.all()[items[n]->whole], slabs[n].at(i - firsts[n]));
      },
      [&](std::size_t i, const SlabReader::Read& read) { consume(number_of(i), read.bytes); });
}

bool are_the_same(const GlobalTensors& tensors, const GlobalTensor& a, const GlobalTensor& b, const Monitor& monitor) {
  if (a.dtype != b.dtype || a.layout != b.layout || a.shape != b.shape) return false;
  const Slabs slabs(a);
  SlabReader reader(tensors, monitor);
  for (std::uint64_t i = 0; i < slabs.count(); ++i) {
    const auto x = reader.read(a, slabs.at(i));
    const auto y = reader.read(b, slabs.at(i));
    if (!std::equal(x.bytes.begin(), x.bytes.end(), y.bytes.begin())) return false;
  }
  return true;
}

}  // namespace ckpt::ops

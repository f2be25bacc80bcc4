// SPDX-License-Identifier: Apache-2.0
#include "ops/mapped_tensor.hpp"

#include "core/digest.hpp"
#include "core/pipeline.hpp"
#include "format/damaged.hpp"
#include "os/fd.hpp"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::ops {
namespace {

using format::Codec;

std::uint64_t page_size() {
  static const auto size = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return size;
}
std::uint64_t page_up(std::uint64_t n) { return (n + page_size() - 1) / page_size() * page_size(); }

/// Bytes of the container, and where they're in the tensor.
struct BlockPart {
  std::uint64_t block = 0;
  std::uint64_t place = 0;
  std::uint64_t at = 0;
  std::uint64_t size = 0;
};

/// One piece for each block; nothing if one isn't stored raw.
std::optional<std::vector<BlockPart>> pieces_of(const StoredFile& file, std::uint64_t begin, std::uint64_t size) {
  std::vector<BlockPart> pieces;
  for (std::uint64_t at = 0; at < size;) {
    const StoredFile::Place place = file.place_of(begin + at);
    const format::BlockRecord& record = file.container().index().blocks[place.block];
    if (record.codec != Codec::raw || record.base || record.stored_size != record.raw_size) return std::nullopt;
    const std::uint64_t inside = begin + at - place.begin;
    const std::uint64_t count = std::min(size - at, place.end - begin - at);
    pieces.push_back({.block = place.block, .place = record.place + inside, .at = at, .size = count});
    at += count;
  }
  return pieces;
}

/// Whether a row of pages can show them one after the other.
bool can_be_joined(const std::vector<BlockPart>& pieces, std::uint64_t width) {
  const std::uint64_t shift = pieces.front().place % page_size();
  if (shift % width != 0) return false;
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    const bool follows = pieces[i].place == pieces[i - 1].place + pieces[i - 1].size;
    const bool at_page = (shift + pieces[i].at) % page_size() == 0 && pieces[i].place % page_size() == 0;
    if (!follows && !at_page) return false;
  }
  return true;
}

}  // namespace

MappedTensor::MappedTensor(std::uint64_t shift, std::uint64_t size)
    : length_(page_up(shift + size)), shift_(shift), size_(size) {
  void* pages = ::mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) os::throw_errno(errno, "cannot map " + std::to_string(length_) + " bytes");
  pages_ = static_cast<std::byte*>(pages);
}

MappedTensor::MappedTensor(MappedTensor&& other) noexcept
    : pages_(std::exchange(other.pages_, nullptr)), length_(other.length_), shift_(other.shift_), size_(other.size_) {}

MappedTensor::~MappedTensor() {
  if (pages_ != nullptr) (void)::munmap(pages_, length_);
}

MappedTensor::Pages MappedTensor::release() { return {.begin = std::exchange(pages_, nullptr), .size = length_}; }

std::optional<MappedTensor> MappedTensor::map(const GlobalTensors& tensors, const GlobalTensor& tensor) {
  if (!tensor.problem.empty() || tensor.parts.size() != 1) return std::nullopt;
  const TensorPart& part = tensor.parts.front();
  const bool is_plain = part.view.layout == Layout::strided && part.view.has_bytes && !part.view.conjugate &&
                        !part.view.negative && bits_of(tensor.dtype) % 8 == 0;
  const auto size = contiguous_bytes(part.view);
  if (!is_plain || !(part.box == whole_of(tensor.shape)) || !is_contiguous(part.view) || !size || *size == 0)
    return std::nullopt;
  const auto file = tensors.stored(part.file);
  const auto pieces = pieces_of(*file, part.view.offset, *size);
  if (!pieces || !can_be_joined(*pieces, bits_of(tensor.dtype) / 8)) return std::nullopt;

  const format::ContainerReader& container = file->container();
  MappedTensor mapped(pieces->front().place % page_size(), *size);
  for (const BlockPart& piece : *pieces) {
    const std::uint64_t before = piece.place % page_size();
    std::byte* const to = mapped.data() + piece.at - before;
    void* const pages = ::mmap(to, page_up(before + piece.size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
                               container.file().fd().get(), static_cast<off_t>(piece.place - before));
    if (pages == MAP_FAILED) os::throw_errno(errno, "cannot map '" + container.path() + "'");
  }
  // What is checked is what will be looked at. The first and last block may hold more than the tensor.
  run_parallel(pieces->size(), worker_count(0), [&](std::size_t i) {
    const BlockPart& piece = (*pieces)[i];
    const format::BlockRecord& record = container.index().blocks[piece.block];
    os::AlignedBuffer buffer;
    const ByteView bytes = piece.size == record.raw_size
                               ? ByteView(mapped.data() + piece.at, piece.size)
                               : container.file().read_through_cache(record.place, record.stored_size, buffer);
    if (bytes.size() == record.raw_size && xxh3_128(bytes) == record.hash) return;
    throw format::Damaged(DamageKind::altered, record.place, record.place + record.stored_size,
                          "'" + container.path() + "': block " + std::to_string(piece.block) + " of tensor '" +
                              tensor.name + "' isn't what was stored");
  });
  return mapped;
}

}  // namespace ckpt::ops

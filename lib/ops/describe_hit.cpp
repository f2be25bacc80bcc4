// SPDX-License-Identifier: Apache-2.0
#include "ops/describe_hit.hpp"

#include <algorithm>

namespace ckpt::ops {
namespace {

using format::BlockRecord;
using format::Codec;
using format::FileEntry;

/// Where a block starts in its file.
std::uint64_t offset_in_file(const format::Catalog& catalog, const FileEntry& file, std::uint64_t block) {
  std::uint64_t offset = 0;
  for (std::uint64_t b = file.first_block; b < block; ++b) offset += catalog.block_sizes[b];
  return offset;
}

/// Blocks are in order of their place.
std::uint64_t first_block_after(const format::ContainerIndex& index, std::uint64_t place) {
  const auto it = std::upper_bound(index.blocks.begin(), index.blocks.end(), place,
                                   [](std::uint64_t p, const BlockRecord& b) { return p < b.place + b.stored_size; });
  return static_cast<std::uint64_t>(it - index.blocks.begin());
}

/// A range of one file's bytes.
struct FileRange {
  const FileEntry* file = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The file bytes that stored bytes [begin, end) of a block stand for: all of the block unless it's stored raw.
FileRange file_range(const format::ContainerReader& container, std::uint64_t block, std::uint64_t begin,
                     std::uint64_t end) {
  const BlockRecord& record = container.index().blocks[block];
  const FileEntry& file = file_of_block(container.catalog(), block);
  const std::uint64_t offset = offset_in_file(container.catalog(), file, block);
  if (record.codec != Codec::raw) return {.file = &file, .begin = offset, .end = offset + record.raw_size};
  return {.file = &file,
          .begin = offset + (std::max(begin, record.place) - record.place),
          .end = offset + (std::min(end, record.place + record.stored_size) - record.place)};
}

bool touches(const Tensor& tensor, const FileRange& range) {
  if (!tensor.has_bytes) return false;
  const std::uint64_t end = view_end(tensor).value_or(tensor.offset);
  return tensor.offset < range.end && end > range.begin;
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

}  // namespace

const FileEntry& file_of_block(const format::Catalog& catalog, std::uint64_t block) {
  const auto after =
      std::upper_bound(catalog.files.begin(), catalog.files.end(), block,
                       [](std::uint64_t b, const FileEntry& f) { return b < f.first_block + f.block_count; });
  return *after;
}

Hit describe_hit(const format::ContainerReader& container, std::uint64_t begin, std::uint64_t end) {
  const auto& blocks = container.index().blocks;
  Hit hit;
  std::uint64_t count = 0;
  const FileEntry* last_file = nullptr;
  for (std::uint64_t b = first_block_after(container.index(), begin); b < blocks.size() && blocks[b].place < end; ++b) {
    const FileRange range = file_range(container, b, begin, end);
    if (range.file != last_file) {
      last_file = range.file;
      if (hit.file.empty()) hit.file = range.file->path;
    }
    for (std::uint64_t t = range.file->first_tensor; t < range.file->first_tensor + range.file->tensor_count; ++t) {
      const Tensor& tensor = container.catalog().tensors[t];
      if (!touches(tensor, range)) continue;
      if (count++ == 0) {
        hit.file = range.file->path;
        hit.tensor = tensor.name;
      }
    }
  }
  hit.more = count > 0 ? count - 1 : 0;
  return hit;
}

format::Damaged name_hit(const format::ContainerReader& container, const format::Damaged& damage) {
  const Hit hit = describe_hit(container, damage.begin(), damage.end());
  std::string what;
  if (!hit.file.empty()) what += "file '" + hit.file + "'";
  if (!hit.tensor.empty()) what += ", tensor '" + hit.tensor + "'";
  if (!what.empty()) what += ": ";
  return {damage.kind(), damage.begin(), damage.end(), what + damage.what()};
}

std::string describe_bit(const format::ContainerReader& container, std::uint64_t byte, unsigned bit) {
  const auto& blocks = container.index().blocks;
  const std::uint64_t b = first_block_after(container.index(), byte);
  const std::string in_container = "byte " + std::to_string(byte) + ", bit " + std::to_string(bit);
  if (b == blocks.size() || blocks[b].place > byte) return in_container + " of the container";
  const FileRange range = file_range(container, b, byte, byte + 1);
  if (blocks[b].codec != Codec::raw) return in_container + " of the container, in " + quoted(range.file->path);
  const std::uint64_t at = range.begin;
  for (std::uint64_t t = range.file->first_tensor; t < range.file->first_tensor + range.file->tensor_count; ++t) {
    const Tensor& tensor = container.catalog().tensors[t];
    if (!touches(tensor, range) || !is_contiguous(tensor)) continue;
    const std::uint64_t bits = (at - tensor.offset) * 8 + bit;
    const unsigned width = bits_of(tensor.dtype);
    return "tensor " + quoted(tensor.name) + " of " + quoted(range.file->path) + ", element " +
           std::to_string(bits / width) + ", bit " + std::to_string(bits % width);
  }
  return "file " + quoted(range.file->path) + ", byte " + std::to_string(at) + ", bit " + std::to_string(bit);
}

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
#include "ops/shard_bytes.hpp"

#include "ops/source_readers.hpp"

#include <algorithm>

namespace ckpt::ops {

ByteView SourceBytes::read(std::size_t file, std::uint64_t offset, std::uint64_t size,
                           os::AlignedBuffer& buffer) const {
  if (const auto& held = entries_[file].held) {
    buffer.reserve(size);
    held->read(offset, {buffer.data(), size});
    return {buffer.data(), size};
  }
  return read_source(*open_source(entries_[file]), offset, size, buffer);
}

std::optional<ByteView> SourceBytes::read_if_held(std::size_t file, std::uint64_t offset, std::uint64_t size,
                                                  os::AlignedBuffer& buffer) const {
  const auto& held = entries_[file].held;
  if (held == nullptr) return read(file, offset, size, buffer);
  buffer.reserve(size);
  if (!held->read_if_held(offset, {buffer.data(), size})) return std::nullopt;
  return ByteView(buffer.data(), size);
}

ByteView StoredBytes::read(std::size_t file, std::uint64_t offset, std::uint64_t size,
                           os::AlignedBuffer& buffer) const {
  const format::FileEntry& entry = container_.catalog().files.at(file);
  const auto& sizes = container_.catalog().block_sizes;
  buffer.reserve(size);
  format::BlockDecoder decoder;
  Bytes changed;
  std::uint64_t begin = 0;
  std::uint64_t filled = 0;
  for (std::uint64_t b = entry.first_block; filled < size; ++b) {
    const std::uint64_t end = begin + sizes.at(b);
    if (end > offset + filled) {
      const ByteView block = with_change(change_, b, decoder.read(container_, b), changed);
      const ByteView raw = block.subspan(offset + filled - begin);
      const std::size_t count = std::min<std::uint64_t>(raw.size(), size - filled);
      std::copy_n(raw.begin(), count, buffer.data() + filled);
      filled += count;
    }
    begin = end;
  }
  return {buffer.data(), size};
}

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
#include "ops/content_change.hpp"

#include <algorithm>

namespace ckpt::ops {

ByteView ChangedBytes::read(std::size_t file, std::uint64_t offset, std::uint64_t size,
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
      ByteView raw = decoder.read(container_, b);
      if (change_.touches(b)) {
        changed.assign(raw.begin(), raw.end());
        change_.apply(b, changed);
        raw = changed;
      }
      raw = raw.subspan(offset + filled - begin);
      const std::size_t count = std::min<std::uint64_t>(raw.size(), size - filled);
      std::copy_n(raw.begin(), count, buffer.data() + filled);
      filled += count;
    }
    begin = end;
  }
  return {buffer.data(), size};
}

}  // namespace ckpt::ops

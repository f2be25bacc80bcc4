// SPDX-License-Identifier: Apache-2.0
#include "ops/tensor_reader.hpp"

#include "ops/strided_gather.hpp"
#include "ops/value_signs.hpp"

#include <algorithm>

namespace ckpt::ops {
namespace {

/// Below this, starting threads costs more than it gains.
constexpr std::uint64_t parallel_read_from = 16U << 20U;

void read_in_place(BlockCursor& cursor, std::uint64_t begin, std::uint64_t end, const Monitor& monitor,
                   const std::function<void(ByteView)>& consume) {
  while (begin < end) {
    require_no_stop(monitor);
    const ByteView there = cursor.at(begin);
    const ByteView piece = there.first(static_cast<std::size_t>(std::min<std::uint64_t>(there.size(), end - begin)));
    consume(piece);
    begin += piece.size();
  }
}

}  // namespace

std::size_t bytes_per_group(DType dtype) {
  const unsigned bits = bits_of(dtype);
  if (bits % 8 == 0) return bits / 8;
  return 8 % bits == 0 ? 1 : 3;  // four 6-bit elements
}

void WholeGroups::put(ByteView piece) {
  if (!carry_.empty()) {
    const std::size_t missing = std::min(group_ - carry_.size(), piece.size());
    append(carry_, piece.first(missing));
    piece = piece.subspan(missing);
    if (carry_.size() < group_) return;
    sink_(carry_);
    carry_.clear();
  }
  const std::size_t rest = piece.size() % group_;
  if (piece.size() > rest) sink_(piece.first(piece.size() - rest));
  append(carry_, piece.last(rest));
}

void WholeGroups::finish() {
  if (!carry_.empty()) sink_(carry_);
  carry_.clear();
}

void read_tensor(BlockCursor& cursor, const Tensor& tensor, unsigned jobs, const Monitor& monitor,
                 const std::function<void(ByteView)>& consume) {
  const std::uint64_t size = contiguous_bytes(tensor).value_or(0);
  if (size == 0) return;
  Bytes scratch;
  const auto resolved = [&](ByteView elements) { consume(resolve_signs(tensor, elements, scratch)); };
  if (!is_contiguous(tensor)) {
    gather_strided(cursor, tensor, monitor, resolved);
    return;
  }
  WholeGroups groups(bytes_per_group(tensor.dtype), resolved);
  const auto put = [&](ByteView piece) { groups.put(piece); };
  if (size >= parallel_read_from) {
    cursor.file().stream(tensor.offset, tensor.offset + size, jobs, monitor, put);
  } else {
    read_in_place(cursor, tensor.offset, tensor.offset + size, monitor, put);
  }
  groups.finish();
}

}  // namespace ckpt::ops

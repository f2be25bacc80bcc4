// SPDX-License-Identifier: Apache-2.0
#include "ops/strided_scatter.hpp"

#include <algorithm>
#include <cstring>

namespace ckpt::ops {
namespace {

template <std::size_t width>
void spread(const std::byte* from, std::byte* to, std::uint64_t stride, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(to + i * stride, from + i * width, width);
}

void put_run(const std::byte* from, std::byte* to, std::uint64_t stride, std::uint64_t count, std::size_t width) {
  if (stride == width) {
    std::memcpy(to, from, count * width);
    return;
  }
  switch (width) {
    case 1: return spread<1>(from, to, stride, count);
    case 2: return spread<2>(from, to, stride, count);
    case 4: return spread<4>(from, to, stride, count);
    case 8: return spread<8>(from, to, stride, count);
    default: return spread<16>(from, to, stride, count);
  }
}

}  // namespace

StridedScatter::StridedScatter(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                               std::size_t width, std::byte* into)
    : width_(width), into_(into) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const auto size = static_cast<std::uint64_t>(shape[d]);
    const std::uint64_t stride = static_cast<std::uint64_t>(strides[d]) * width;
    if (size == 1) continue;
    if (!dims_.empty() && dims_.back().stride == stride * size) {
      dims_.back() = {.size = dims_.back().size * size, .stride = stride};
    } else {
      dims_.push_back({.size = size, .stride = stride});
    }
  }
  if (dims_.empty()) dims_.push_back({.size = 1, .stride = width});
}

StridedScatter::Place StridedScatter::place_of(std::uint64_t element) const {
  Place place{.at = into_, .run = dims_.back().size - element % dims_.back().size};
  for (std::size_t d = dims_.size(); d-- > 0;) {
    place.at += element % dims_[d].size * dims_[d].stride;
    element /= dims_[d].size;
  }
  return place;
}

void StridedScatter::put(std::uint64_t at, ByteView data) const {
  // The ends of elements that were cut.
  const auto put_within = [&](std::size_t begin, std::size_t size) {
    std::copy_n(data.begin(), size, place_of(at / width_).at + begin);
    data = data.subspan(size);
    at += size;
  };
  if (const std::size_t begin = at % width_; begin != 0) put_within(begin, std::min(width_ - begin, data.size()));
  while (data.size() >= width_) {
    const Place place = place_of(at / width_);
    const std::uint64_t count = std::min<std::uint64_t>(place.run, data.size() / width_);
    put_run(data.data(), place.at, dims_.back().stride, count, width_);
    data = data.subspan(count * width_);
    at += count * width_;
  }
  if (!data.empty()) put_within(0, data.size());
}

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
#include "ops/strided_gather.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace ckpt::ops {
namespace {

struct Dim {
  std::uint64_t size = 0;
  std::uint64_t stride = 0;  ///< in the source, in elements
  std::uint64_t step = 0;    ///< in the tile, in elements
};

/// The dimensions that matter, outermost first: those of size 1 are left out, those that run on into the next joined.
std::vector<Dim> dims_of(const Tensor& tensor) {
  std::vector<Dim> dims;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const auto size = static_cast<std::uint64_t>(tensor.shape[i]);
    const auto stride = static_cast<std::uint64_t>(tensor.strides[i]);
    if (size == 1) continue;
    if (!dims.empty() && dims.back().stride == stride * size) {
      dims.back() = {.size = dims.back().size * size, .stride = stride, .step = 0};
    } else {
      dims.push_back({.size = size, .stride = stride, .step = 0});
    }
  }
  if (dims.empty()) dims.push_back({.size = 1, .stride = 1, .step = 1});
  return dims;
}

void set_steps(std::vector<Dim>& dims) {
  std::uint64_t step = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    dims[i].step = step;
    step *= dims[i].size;
  }
}

/// Calls run(source, target) for each combination of the indices of all dimensions but the last.
template <class RunAt>
void for_each_run(const std::vector<Dim>& dims, std::uint64_t source, RunAt&& run) {
  std::vector<std::uint64_t> index(dims.size() - 1);
  std::uint64_t target = 0;
  while (true) {
    run(source, target);
    std::size_t d = index.size();
    for (; d > 0; --d) {
      const Dim& dim = dims[d - 1];
      source += dim.stride;
      target += dim.step;
      if (++index[d - 1] < dim.size) break;
      source -= dim.size * dim.stride;
      target -= dim.size * dim.step;
      index[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

template <std::size_t width>
void copy_elements(const std::byte* from, std::uint64_t stride, std::byte* to, std::uint64_t step,
                   std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) std::memcpy(to + i * step * width, from + i * stride * width, width);
}

void copy_run(const std::byte* from, std::uint64_t stride, std::byte* to, std::uint64_t step, std::uint64_t count,
              std::uint64_t width) {
  if (stride == 1 && step == 1) {
    std::memcpy(to, from, count * width);
    return;
  }
  switch (width) {
    case 1: return copy_elements<1>(from, stride, to, step, count);
    case 2: return copy_elements<2>(from, stride, to, step, count);
    case 4: return copy_elements<4>(from, stride, to, step, count);
    case 8: return copy_elements<8>(from, stride, to, step, count);
    default: return copy_elements<16>(from, stride, to, step, count);
  }
}

/// Elements of whole bytes into one tile.
void fill_tile(RandomBytes& cursor, std::uint64_t origin, std::vector<Dim> dims, std::uint64_t first,
               std::uint64_t width, std::span<std::byte> tile, const Monitor& monitor) {
  set_steps(dims);
  std::erase_if(dims, [](const Dim& dim) { return dim.size == 1; });
  if (dims.empty()) dims.push_back({.size = 1, .stride = 0, .step = 0});
  // In the order of the source's addresses; overlapping views come near it, and the cursor's cache does the rest.
  std::stable_sort(dims.begin(), dims.end(), [](const Dim& a, const Dim& b) { return a.stride > b.stride; });
  const Dim inner = dims.back();
  std::uint64_t runs = 0;
  for_each_run(dims, first, [&](std::uint64_t source, std::uint64_t target) {
    if (++runs % 4096 == 0) require_no_stop(monitor);
    std::uint64_t left = inner.size;
    while (left > 0) {
      const std::uint64_t offset = origin + source * width;
      std::byte* const to = tile.data() + target * width;
      const ByteView block = cursor.at(offset);
      std::uint64_t count = 1;
      if (block.size() < width) {
        cursor.read(offset, {to, width});
      } else {
        if (inner.stride == 0) {
          count = left;
        } else {
          count = std::min(left, (block.size() - width) / (inner.stride * width) + 1);
        }
        copy_run(block.data(), inner.stride, to, inner.step, count, width);
      }
      source += count * inner.stride;
      target += count * inner.step;
      left -= count;
    }
  });
}

/// Elements of less than a byte, packed from the low bits up.
Bytes gather_bits(RandomBytes& cursor, const Tensor& tensor, std::uint64_t tile) {
  const std::uint64_t bits = bits_of(tensor.dtype);
  Bytes packed;
  const std::uint64_t size = contiguous_bytes(tensor).value_or(tile + 1);
  if (size > tile) {
    throw Error(Errc::unsupported, "tensor '" + tensor.name + "' is a view that isn't contiguous, of " +
                                       std::to_string(bits) + "-bit elements, and too large");
  }
  packed.resize(size);
  std::vector<Dim> dims = dims_of(tensor);
  set_steps(dims);
  dims.push_back({.size = 1, .stride = 0, .step = 0});
  for_each_run(dims, 0, [&](std::uint64_t source, std::uint64_t target) {
    const std::uint64_t from = source * bits;
    const std::uint64_t to = target * bits;
    std::array<std::byte, 2> pair{};
    cursor.read(tensor.offset + from / 8, std::span(pair).first(from % 8 + bits > 8 ? 2 : 1));
    const unsigned value = (load_le<std::uint16_t>(pair.data()) >> (from % 8)) & ((1U << bits) - 1);
    const unsigned shifted = value << (to % 8);
    packed[to / 8] |= static_cast<std::byte>(shifted & 0xffU);
    if (shifted > 0xffU) packed[to / 8 + 1] |= static_cast<std::byte>(shifted >> 8U);
  });
  return packed;
}

}  // namespace

void gather_strided(RandomBytes& cursor, const Tensor& tensor, const Monitor& monitor,
                    const std::function<void(ByteView)>& consume, std::uint64_t tile) {
  if (element_count(tensor).value_or(0) == 0) return;
  if (bits_of(tensor.dtype) % 8 != 0) {
    consume(gather_bits(cursor, tensor, tile));
    return;
  }
  const std::uint64_t width = bits_of(tensor.dtype) / 8;
  const std::vector<Dim> dims = dims_of(tensor);

  // The outermost dimension that a tile cuts: all within it fits one.
  std::size_t cut = dims.size() - 1;
  std::uint64_t inside = width;
  while (cut > 0 && inside <= tile / dims[cut].size) inside *= dims[cut--].size;
  const std::uint64_t most = std::max<std::uint64_t>(1, tile / inside);

  Bytes buffer(std::min(most, dims[cut].size) * inside);
  std::vector<Dim> outer(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(cut));
  outer.push_back({.size = 1, .stride = 0, .step = 0});
  for_each_run(outer, 0, [&](std::uint64_t source, std::uint64_t) {
    for (std::uint64_t done = 0; done < dims[cut].size; done += most) {
      require_no_stop(monitor);
      std::vector<Dim> part(dims.begin() + static_cast<std::ptrdiff_t>(cut), dims.end());
      part.front().size = std::min(most, dims[cut].size - done);
      const std::span<std::byte> into(buffer.data(), part.front().size * inside);
      fill_tile(cursor, tensor.offset, std::move(part), source + done * dims[cut].stride, width, into, monitor);
      consume(into);
    }
  });
}

}  // namespace ckpt::ops

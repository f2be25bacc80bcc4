// SPDX-License-Identifier: Apache-2.0
// The way back of a gather: elements in row-major order go to where a strided view in memory has them.
#pragma once

#include "core/bytes.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ckpt::ops {

/// Holds no element; several threads may put different ones.
class StridedScatter {
 public:
  /// `shape` has no 0 in it. `strides` are in elements of `width` bytes and not negative; `into` is the first element's
  /// place.
  StridedScatter(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides, std::size_t width,
                 std::byte* into);

  /// `at` is how many bytes come before `data` in row-major order. Elements may be cut at both ends.
  void put(std::uint64_t at, ByteView data) const;

 private:
  struct Dim {
    std::uint64_t size = 1;
    std::uint64_t stride = 1;  ///< in bytes
  };
  /// Of an element, and how many follow it in the innermost dimension, itself included.
  struct Place {
    std::byte* at = nullptr;
    std::uint64_t run = 1;
  };
  [[nodiscard]] Place place_of(std::uint64_t element) const;

  std::vector<Dim> dims_;  ///< outermost first; those that run on into the next are joined
  std::size_t width_;
  std::byte* into_;
};

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
// The text, a byte a token. Where a sample begins is a function of seed, step and the sample's number in the batch, so
// a training that is resumed, on however many ranks, sees the samples that it would have seen.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace trainer {

/// How many tokens there are.
inline constexpr std::int64_t vocabulary = 256;

class Text {
 public:
  /// `path` is a file, or a directory whose regular files are read in the order of their names. Throws if there are
  /// less than `length` bytes.
  Text(const std::string& path, std::int64_t length, std::int64_t seed);

  [[nodiscard]] std::size_t size() const { return bytes_.size(); }

  /// Samples [first, last) of a step's batch: int64, of shape [last - first, length].
  [[nodiscard]] at::Tensor samples(std::int64_t step, std::int64_t first, std::int64_t last) const;

 private:
  std::string bytes_;
  std::int64_t length_;
  std::int64_t seed_;
};

}  // namespace trainer

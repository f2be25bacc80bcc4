// SPDX-License-Identifier: Apache-2.0
// The state that is saved: tensors of 32-bit floats that look like weights, the same for the same seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ckpt::measure {

struct StateTensor {
  std::string name;
  std::size_t offset = 0;  ///< in floats, in its rank's memory
  std::size_t count = 0;   ///< floats
};

/// Memory of its own, as an allocator for large tensors gives it.
class FloatMemory {
 public:
  explicit FloatMemory(std::size_t count);
  FloatMemory(FloatMemory&& other) noexcept;
  FloatMemory& operator=(FloatMemory&&) = delete;
  FloatMemory(const FloatMemory&) = delete;
  FloatMemory& operator=(const FloatMemory&) = delete;
  ~FloatMemory();
  [[nodiscard]] std::span<float> span() const { return {data_, count_}; }

 private:
  float* data_ = nullptr;
  std::size_t count_ = 0;
};

class State {
 public:
  /// `bytes` of all ranks together, rounded to whole floats. Throws invalid_argument if it's too small to be cut so.
  State(std::uint64_t bytes, std::uint32_t ranks, std::uint32_t tensors, std::uint64_t seed);

  /// As it was at first, on so many threads.
  void reset(unsigned threads);
  /// An optimizer's step: the first `share` of each rank's memory changes a little. One of `parts` does its part.
  void update(std::uint64_t step, double share, std::size_t part, std::size_t parts);

  [[nodiscard]] std::size_t ranks() const { return memory_.size(); }
  [[nodiscard]] std::span<float> memory(std::size_t rank) const { return memory_[rank].span(); }
  /// The same of all ranks.
  [[nodiscard]] const std::vector<StateTensor>& tensors() const { return tensors_; }
  [[nodiscard]] std::span<const float> tensor(std::size_t rank, const StateTensor& tensor) const {
    return memory(rank).subspan(tensor.offset, tensor.count);
  }
  [[nodiscard]] std::uint64_t bytes() const;  ///< of all tensors of all ranks

  /// Writes a rank's tensors as a safetensors file, as trainers do: not synced.
  void write_file(std::size_t rank, const std::string& path) const;

 private:
  std::uint64_t seed_;
  std::vector<StateTensor> tensors_;
  std::vector<FloatMemory> memory_;
  std::vector<float> noise_;
};

}  // namespace ckpt::measure

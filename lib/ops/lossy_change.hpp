// SPDX-License-Identifier: Apache-2.0
// Which bytes of a shard change when tensors lose values, and to what: values first, then the checksums of the zip
// members that hold them, so that what reads the file doesn't take the change for damage.
#pragma once

#include "format/container_reader.hpp"
#include "ops/content_change.hpp"
#include "ops/lossy_values.hpp"

#include <ckpt/compress.hpp>
#include <ckpt/monitor.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::ops {

/// "dropped", "quantized to int8", "sparsified by 0.5".
[[nodiscard]] std::string verb_of(const LossyRule& rule);

class LossyChange final : public ContentChange {
 public:
  /// Finds what the rules are about. Throws Errc::unsupported where a tensor shares bytes with one that is to stay as
  /// it is, or where the file's own checksums can't be made right.
  LossyChange(std::shared_ptr<const format::ContainerReader> container, const std::vector<LossyRule>& rules);

  /// Reads all that changes, finds out what follows from all of a tensor's values, and computes checksums. Before
  /// apply(). Throws Damaged, interrupted.
  void prepare(unsigned jobs, Monitor& monitor);

  /// Tensors that change.
  [[nodiscard]] bool empty() const { return parts_.empty(); }
  /// Rules that have a tensor to change, by their place in the list.
  [[nodiscard]] const std::vector<bool>& matched() const { return matched_; }
  /// After prepare(): what became of each tensor.
  [[nodiscard]] std::vector<TensorLoss> losses() const;

  [[nodiscard]] bool touches(std::uint64_t block) const override;
  void apply(std::uint64_t block, std::span<std::byte> raw) const override;

 private:
  /// Bytes of a file that change in one way.
  struct Part {
    std::size_t file = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::string name;  ///< the first tensor that has them
    DType dtype = DType::opaque;
    std::vector<const LossyRule*> rules;  ///< in their order
    std::uint64_t smallest_key = 0;       ///< magnitudes below become zero
    ValueError error;
  };
  struct Member {
    std::size_t file = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::vector<std::uint64_t> checksums;
  };
  struct Place {
    std::size_t file = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  void find_parts(std::size_t file, const std::vector<LossyRule>& rules);
  void require_whole_numbers(const Part& part) const;
  void find_members(std::size_t file);
  void find_smallest(Part& part, double fraction, unsigned jobs, Monitor& monitor);
  void change_values(const Part& part, std::uint64_t begin, std::span<std::byte> bytes) const;
  /// Calls use(part, first byte in the file, bytes in `raw`) for each part that a block holds some of.
  template <class Use>
  void for_parts(std::uint64_t block, std::size_t size, Use use) const;

  std::shared_ptr<const format::ContainerReader> container_;
  std::vector<LossyRule> rules_;
  std::vector<bool> matched_;
  std::vector<Place> places_;    ///< of blocks
  std::vector<Part> parts_;      ///< sorted, without overlap
  std::vector<Member> members_;  ///< those that parts lie in, sorted
  std::map<std::pair<std::size_t, std::uint64_t>, std::array<std::byte, 4>> patches_;  ///< by file and place
};

}  // namespace ckpt::ops

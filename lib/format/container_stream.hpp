// SPDX-License-Identifier: Apache-2.0
// Checks a container that passes by once, from its first byte to its last. Where its sums begin follows from its size
// alone, so nothing but the sums themselves has to be kept: a 8192nd of it.
#pragma once

#include "core/bytes.hpp"
#include "core/digest.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ckpt::format {

/// Not thread-safe.
class ContainerStream {
 public:
  /// `size` and `digest` are what the manifest says. Throws Damaged if no container has that size.
  ContainerStream(std::uint64_t size, const Digest& digest, std::string name);

  /// The next bytes. Throws Damaged for more than there should be.
  void update(ByteView bytes);
  [[nodiscard]] std::uint64_t received() const { return received_; }
  /// It was the container that the manifest names, and whole: else throws Damaged.
  void finish() const;

 private:
  void end_granule();

  std::string name_;
  std::uint64_t size_;
  Digest digest_;
  std::uint64_t sums_offset_;
  std::uint64_t received_ = 0;
  Bytes partial_;                    ///< the begun granule
  std::vector<std::uint64_t> sums_;  ///< of the granules that have passed
  Bytes footer_;
  Hasher stored_sums_;  ///< the digest of the sums as they came
};

}  // namespace ckpt::format

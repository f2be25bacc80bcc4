// SPDX-License-Identifier: Apache-2.0
// What is wrong with stored bytes, and where: an Error that verify turns into a line of its report.
#pragma once

#include <ckpt/error.hpp>
#include <ckpt/verify.hpp>

#include <cstdint>
#include <string>

namespace ckpt::format {

class Damaged : public Error {
 public:
  Damaged(DamageKind kind, std::uint64_t begin, std::uint64_t end, const std::string& message, int system_errno = 0)
      : Error(Errc::damaged, message, system_errno), kind_(kind), begin_(begin), end_(end) {}

  [[nodiscard]] DamageKind kind() const { return kind_; }
  /// Byte range in the file; both 0 if the whole file is meant.
  [[nodiscard]] std::uint64_t begin() const { return begin_; }
  [[nodiscard]] std::uint64_t end() const { return end_; }

 private:
  DamageKind kind_;
  std::uint64_t begin_;
  std::uint64_t end_;
};

}  // namespace ckpt::format

// SPDX-License-Identifier: Apache-2.0
// What a rank says of itself: the datagrams of sd_notify(3), so that any language has them in three lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::run {

struct Notice {
  bool alive = false;                               ///< WATCHDOG=1
  bool gives_up = false;                            ///< WATCHDOG=trigger
  std::optional<std::chrono::microseconds> extend;  ///< EXTEND_TIMEOUT_USEC: silent for so long, and well
  std::optional<std::string> status;                ///< STATUS: one printable line
};

/// What isn't known is passed over, and so is what is malformed.
[[nodiscard]] Notice parse_notice(std::string_view datagram);

/// "step 1200 loss 1.93", also with '=' or ':' between a name and its number.
struct StatusNumbers {
  std::optional<std::uint64_t> step;
  std::optional<double> loss;
};
[[nodiscard]] StatusNumbers parse_status(std::string_view status);

}  // namespace ckpt::run

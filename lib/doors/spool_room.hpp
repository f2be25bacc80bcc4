// SPDX-License-Identifier: Apache-2.0
// How much is in a spool, and how much may be.
#pragma once

#include "doors/spool.hpp"

#include <ckpt/stage.hpp>

#include <string>

namespace ckpt::doors {

struct Load {
  std::uint64_t saves = 0;
  std::uint64_t bytes = 0;
};

/// What is staged or on its way in.
[[nodiscard]] Load load_of(const Spool& spool);

/// Why one more save of so many bytes has to wait; empty if there's room. One alone always has.
[[nodiscard]] std::string why_full(const Load& load, const StagedLimit& limit, std::uint64_t bytes);

}  // namespace ckpt::doors

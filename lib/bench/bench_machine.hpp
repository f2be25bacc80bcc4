// SPDX-License-Identifier: Apache-2.0
// What the machine can do at best: the numbers that all others are set against.
#pragma once

#include <ckpt/bench.hpp>

#include <cstdint>
#include <string>

namespace ckpt::measure {

[[nodiscard]] BenchMachine measure_machine(std::uint64_t bytes);

/// Writes so much to a file in the directory, reads it, removes it. What killed ones left there goes too.
[[nodiscard]] BenchDevice measure_device(const std::string& directory, std::uint64_t bytes, const Monitor& monitor);

}  // namespace ckpt::measure

// SPDX-License-Identifier: Apache-2.0
// Reads a pickle of protocol 0 to 5 into plain data. The opcodes are interpreted without calling anything, in one
// pass and without recursion; every allocation is bounded by the limits below.
#pragma once

#include "core/bytes.hpp"
#include "source/pickle.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace ckpt::source {

/// Beyond any of these a pickle is refused.
inline constexpr std::uint64_t max_pickle_bytes = std::uint64_t{256} << 20U;
inline constexpr std::size_t max_pickle_nodes = std::size_t{12} << 20U;  ///< also of tuple elements and of entries
inline constexpr std::size_t max_pickle_marks = 10'000;                  ///< containers open at once

enum class PickleStatus {
  complete,   ///< a STOP was reached
  cut_short,  ///< the bytes end before it
  altered,    ///< the bytes are no pickle
  refused,    ///< a limit is exceeded, or the protocol is too new
};

struct PickleResult {
  PickleStatus status = PickleStatus::complete;
  Pickle pickle;        ///< empty unless complete
  std::size_t end = 0;  ///< one past the STOP; else where reading ended
  std::string message;  ///< what is wrong; empty if complete
};

/// Never throws because of the bytes. `data` must outlive the result.
[[nodiscard]] PickleResult read_pickle(ByteView data);

}  // namespace ckpt::source

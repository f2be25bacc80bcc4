// SPDX-License-Identifier: Apache-2.0
// What Python's str() makes of a key that a pickle holds.
#pragma once

#include "source/pickle.hpp"

#include <optional>
#include <string>

namespace ckpt::source {

/// Keys are cut off from here on: nothing, instead of a longer text.
inline constexpr std::size_t max_key_text = 4096;

/// str() of a text, number, None, bool, bytes, tuple or class. An object, which may have any str(), is written as
/// its class and arguments. Nothing if that's longer than max_key_text or nested deeper than 32.
[[nodiscard]] std::optional<std::string> python_str(const Pickle& pickle, NodeId id);

}  // namespace ckpt::source

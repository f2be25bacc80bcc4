// SPDX-License-Identifier: Apache-2.0
// One text as JSON writes it.
#pragma once

#include <optional>
#include <string>

namespace ckpt::format {

/// In quotes, escaped where JSON needs it; nothing if it isn't UTF-8, which JSON can't hold.
[[nodiscard]] std::optional<std::string> json_text(const std::string& text);

}  // namespace ckpt::format

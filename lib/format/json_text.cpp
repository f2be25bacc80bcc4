// SPDX-License-Identifier: Apache-2.0
#include "format/json_text.hpp"

#include <nlohmann/json.hpp>

namespace ckpt::format {

std::optional<std::string> json_text(const std::string& text) {
  try {
    return nlohmann::ordered_json(text).dump();
  } catch (const nlohmann::ordered_json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ckpt::format

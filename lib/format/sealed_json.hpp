// SPDX-License-Identifier: Apache-2.0
// JSON files that end with their own XXH3-128: readable with cat and jq, checked before they're believed.
//
// The last member of the top object is "xxh3_128": 32 hex digits over every byte of the file before it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ckpt::format {

/// `object` is a JSON object; bytes that aren't UTF-8 in it become U+FFFD.
[[nodiscard]] std::string seal(const nlohmann::ordered_json& object);

/// Throws Damaged (truncated, altered) with `name` in the message.
[[nodiscard]] nlohmann::ordered_json unseal(std::string_view text, const std::string& name);

/// True if a text ends with its own checksum.
[[nodiscard]] bool is_sealed(std::string_view text);

}  // namespace ckpt::format

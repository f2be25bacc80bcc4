// SPDX-License-Identifier: Apache-2.0
#include "format/sealed_json.hpp"

#include "core/digest.hpp"
#include "format/damaged.hpp"

#include <nlohmann/json.hpp>

namespace ckpt::format {
namespace {

constexpr std::string_view key = "  \"xxh3_128\": \"";
constexpr std::string_view tail = "\"\n}\n";
constexpr std::size_t seal_size = key.size() + 32 + tail.size();

/// What the checksum covers, or nothing if the text doesn't end like a sealed one.
std::string_view sealed_part(std::string_view text) {
  if (text.size() <= seal_size || !text.ends_with(tail)) return {};
  const std::size_t size = text.size() - seal_size;
  return text.substr(size, key.size()) == key ? text.substr(0, size) : std::string_view{};
}

/// The JSON library copies values recursively: a text with a million brackets would end the process.
bool nests_too_deeply(std::string_view text) {
  constexpr int most = 32;
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\') {
      ++i;
    } else if (c == '"') {
      in_string = !in_string;
    } else if (!in_string && (c == '[' || c == '{')) {
      if (++depth > most) return true;
    } else if (!in_string && (c == ']' || c == '}')) {
      --depth;
    }
  }
  return false;
}

}  // namespace

std::string seal(const nlohmann::ordered_json& object) {
  std::string text = object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.resize(text.size() - 2);  // "\n}"
  text += ",\n";
  return text + std::string(key) + to_hex(xxh3_128(std::string_view(text))) + std::string(tail);
}

bool is_sealed(std::string_view text) {
  const std::string_view part = sealed_part(text);
  return !part.empty() && text.substr(part.size() + key.size(), 32) == to_hex(xxh3_128(part));
}

nlohmann::ordered_json unseal(std::string_view text, const std::string& name) {
  const std::string_view part = sealed_part(text);
  if (part.empty()) {
    const bool cut = !text.ends_with(tail);
    throw Damaged(cut ? DamageKind::truncated : DamageKind::altered, 0, text.size(),
                  "'" + name + "' doesn't end with its checksum");
  }
  if (!is_sealed(text)) {
    throw Damaged(DamageKind::altered, 0, text.size(), "'" + name + "' doesn't match its checksum");
  }
  if (nests_too_deeply(text)) {
    throw Damaged(DamageKind::altered, 0, text.size(), "'" + name + "' is nested too deeply");
  }
  nlohmann::ordered_json object = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!object.is_object()) throw Damaged(DamageKind::altered, 0, text.size(), "'" + name + "' is not a JSON object");
  return object;
}

}  // namespace ckpt::format

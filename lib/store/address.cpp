// SPDX-License-Identifier: Apache-2.0
// STORE[@STEP]: what is a suffix and what is part of the path.
#include <ckpt/address.hpp>

#include <ckpt/error.hpp>

#include <algorithm>
#include <charconv>
#include <optional>

namespace ckpt {
namespace {

constexpr std::string_view latest_word = "latest";
constexpr std::string_view id_prefix = "id:";

bool all_of(std::string_view text, std::string_view allowed) {
  return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
}

std::uint64_t number(std::string_view digits, std::string_view whole) {
  std::uint64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc() || value > max_step) {
    throw Error(Errc::invalid_argument, "step in '" + std::string(whole) + "' is above " + std::to_string(max_step));
  }
  return value;
}

/// Nothing if the text isn't a selector at all: it's then part of the path.
std::optional<Selector> parse_selector(std::string_view text, std::string_view whole) {
  constexpr std::string_view decimal = "0123456789";
  if (all_of(text, decimal))
    return Selector{.kind = Selector::Kind::step, .step = number(text, whole), .back = 0, .id_prefix = {}};
  if (text.starts_with(latest_word)) {
    const std::string_view rest = text.substr(latest_word.size());
    if (rest.empty()) return Selector{.kind = Selector::Kind::latest, .step = 0, .back = 0, .id_prefix = {}};
    if (rest.front() != '~' || !all_of(rest.substr(1), decimal)) return std::nullopt;
    return Selector{.kind = Selector::Kind::latest, .step = 0, .back = number(rest.substr(1), whole), .id_prefix = {}};
  }
  if (text.starts_with(id_prefix)) {
    const std::string_view hex = text.substr(id_prefix.size());
    if (!all_of(hex, "0123456789abcdef") || hex.size() < 4 || hex.size() > 32) {
      throw Error(Errc::invalid_argument, "id in '" + std::string(whole) + "' is not 4 to 32 lower-case hex digits");
    }
    return Selector{.kind = Selector::Kind::id, .step = 0, .back = 0, .id_prefix = std::string(hex)};
  }
  return std::nullopt;
}

}  // namespace

Address parse_address(std::string_view text) {
  const std::size_t slash = text.rfind('/');
  const std::size_t at = text.rfind('@');
  Address address{.store = std::string(text), .selector = {}};
  if (at != std::string_view::npos && (slash == std::string_view::npos || at > slash)) {
    if (at + 1 == text.size()) {
      throw Error(Errc::invalid_argument, "the step in '" + std::string(text) + "' is empty");
    }
    if (const auto selector = parse_selector(text.substr(at + 1), text)) {
      address = {.store = std::string(text.substr(0, at)), .selector = *selector};
    }
  }
  if (address.store.empty()) throw Error(Errc::invalid_argument, "'" + std::string(text) + "' names no store");
  return address;
}

std::string to_string(const Address& address) {
  switch (address.selector.kind) {
    case Selector::Kind::step: return address.store + "@" + std::to_string(address.selector.step);
    case Selector::Kind::id: return address.store + "@id:" + address.selector.id_prefix;
    case Selector::Kind::latest:
      if (address.selector.back == 0) return address.store + "@latest";
      return address.store + "@latest~" + std::to_string(address.selector.back);
    case Selector::Kind::none: break;
  }
  // A path that would read as one with a selector gets a slash at its end.
  return parse_address(address.store).selector.kind == Selector::Kind::none ? address.store : address.store + "/";
}

std::string address_of(std::string_view store, std::uint64_t step) {
  return to_string(Address{.store = std::string(store),
                           .selector = {.kind = Selector::Kind::step, .step = step, .back = 0, .id_prefix = {}}});
}

}  // namespace ckpt

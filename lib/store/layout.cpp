// SPDX-License-Identifier: Apache-2.0
#include "store/layout.hpp"

#include <ckpt/address.hpp>

#include <fmt/format.h>
#include <charconv>

namespace ckpt::store {
namespace {

constexpr std::size_t step_digits = 10;
constexpr std::string_view attempt_prefix = "attempt-";

/// The whole text as a decimal number without sign; leading zeros are allowed.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Takes what is before the next `separator` off the front of `text`; all of it if there is none.
std::string_view take_until(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view front = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return front;
}

}  // namespace

std::string step_name(std::uint64_t step) { return fmt::format("{:010}", step); }

std::optional<std::uint64_t> parse_step_name(std::string_view name) {
  if (name.size() != step_digits) return std::nullopt;
  return parse_number<std::uint64_t>(name);
}

std::string set_name(const SetKey& key) { return fmt::format("{:010}.{}.{}", key.step, key.world_size, key.attempt); }

std::optional<SetKey> parse_set_name(std::string_view name) {
  const auto step = parse_step_name(take_until(name, '.'));
  const auto world_size = parse_number<std::uint32_t>(take_until(name, '.'));
  const auto attempt = parse_number<std::uint64_t>(name);
  if (!step || !world_size || *world_size == 0 || !attempt) return std::nullopt;
  return SetKey{.step = *step, .world_size = *world_size, .attempt = *attempt};
}

std::string shard_name(const ShardName& shard) {
  const std::string base = fmt::format("shard-{:05}-of-{:05}", shard.rank, shard.world_size);
  return shard.version == 0 ? base + ".ckpt" : fmt::format("{}.{}.ckpt", base, shard.version);
}

std::optional<ShardName> parse_shard_name(std::string_view name) {
  constexpr std::string_view prefix = "shard-", suffix = ".ckpt", middle = "-of-";
  if (!name.starts_with(prefix) || !name.ends_with(suffix)) return std::nullopt;
  name = name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
  const std::size_t of = name.find(middle);
  if (of == std::string_view::npos) return std::nullopt;
  const auto rank = parse_number<std::uint32_t>(name.substr(0, of));
  name.remove_prefix(of + middle.size());
  const auto world_size = parse_number<std::uint32_t>(take_until(name, '.'));
  const auto version = name.empty() ? std::optional<std::uint32_t>(0) : parse_number<std::uint32_t>(name);
  if (!rank || !world_size || !version || *rank >= *world_size) return std::nullopt;
  return ShardName{.rank = *rank, .world_size = *world_size, .version = *version};
}

std::string attempt_name(std::uint64_t attempt) { return fmt::format("{}{:010}", attempt_prefix, attempt); }

std::optional<std::uint64_t> parse_attempt_name(std::string_view name) {
  if (!name.starts_with(attempt_prefix)) return std::nullopt;
  return parse_number<std::uint64_t>(name.substr(attempt_prefix.size()));
}

}  // namespace ckpt::store

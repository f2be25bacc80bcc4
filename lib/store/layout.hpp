// SPDX-License-Identifier: Apache-2.0
// The names inside a store. Steps are ten digits, so that `ls` sorts them.
//
//   0000001000/                           a committed checkpoint
//     manifest.json
//     shard-00000-of-00004.ckpt           shard-00000-of-00004.1.ckpt: a later version of the same shard
//   .pending/0000001010.4.2/              a set: step, world size, attempt
//   .pending/0000001010.4.2.replace       that set may take the place of what is committed at its step
//   .pending/0000001010.4.2.decision      whether that set is saved or skipped
//   .pending/attempt-0000000002           attempt 2 has opened the store
//   .pending/tmp/                         files in the making, locked by their writer
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::store {

inline constexpr const char* description_file = "ckpt-store.json";
inline constexpr const char* manifest_file = "manifest.json";
/// After a set's name: the mark of one that may take the place of what is committed.
inline constexpr std::string_view replace_suffix = ".replace";

struct SetKey {
  std::uint64_t step = 0;
  std::uint32_t world_size = 1;
  std::uint64_t attempt = 0;
  friend auto operator<=>(const SetKey&, const SetKey&) = default;
};

struct ShardName {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t version = 0;
};

[[nodiscard]] std::string step_name(std::uint64_t step);
[[nodiscard]] std::optional<std::uint64_t> parse_step_name(std::string_view name);
[[nodiscard]] std::string set_name(const SetKey& key);
[[nodiscard]] std::optional<SetKey> parse_set_name(std::string_view name);
[[nodiscard]] std::string shard_name(const ShardName& shard);
[[nodiscard]] std::optional<ShardName> parse_shard_name(std::string_view name);
[[nodiscard]] std::string attempt_name(std::uint64_t attempt);
[[nodiscard]] std::optional<std::uint64_t> parse_attempt_name(std::string_view name);

}  // namespace ckpt::store

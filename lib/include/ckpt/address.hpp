// SPDX-License-Identifier: Apache-2.0
// STORE[@STEP]: how users name a store and a checkpoint in it.
//
// The suffix is an '@' after the last '/', followed by digits, `latest`, `latest~N` or `id:PREFIX`. Anything
// else is part of the path. Values are plain; functions are pure and thread-safe.
#pragma once

#include <ckpt/export.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace ckpt {

struct Selector {
  enum class Kind { none, step, latest, id };
  Kind kind = Kind::none;
  std::uint64_t step = 0;  ///< Kind::step
  std::uint64_t back = 0;  ///< Kind::latest: so many good checkpoints before the latest
  std::string id_prefix;   ///< Kind::id: 4 to 32 lower-case hex digits

  friend bool operator==(const Selector&, const Selector&) = default;
};

struct Address {
  std::string store;  ///< a path, as given
  Selector selector;

  friend bool operator==(const Address&, const Address&) = default;
};

/// The highest step a checkpoint can have: ten digits.
inline constexpr std::uint64_t max_step = 9'999'999'999;

/// Throws Errc::invalid_argument for an empty store, a step above max_step or a malformed id.
[[nodiscard]] CKPT_API Address parse_address(std::string_view text);

/// A text that parse_address() reads back as the same address.
[[nodiscard]] CKPT_API std::string to_string(const Address& address);

/// The address of one step: what ckpt-save prints.
[[nodiscard]] CKPT_API std::string address_of(std::string_view store, std::uint64_t step);

}  // namespace ckpt

// SPDX-License-Identifier: Apache-2.0
// A flat hash table from texts to numbers. It keeps hashes and numbers only; the texts live in the caller's own table,
// which the caller's comparison looks into. That makes a lookup one cache line and an insertion no allocation.
#pragma once

#include "core/bytes.hpp"
#include "core/digest.hpp"
#include "source/huge_table.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace ckpt::source {

/// Not thread-safe while it's filled.
class HashIndex {
 public:
  static constexpr std::uint32_t absent = 0xffffffffU;

  explicit HashIndex(std::size_t expected = 16) : slots_(std::bit_ceil(expected * 2 + 16), Slot{}) {}

  [[nodiscard]] static std::uint64_t hash(std::string_view text) { return xxh3_64(as_bytes(text)); }

  /// The number under a text; `same(number)` says whether a number stands for it.
  template <class Same>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, const Same& same) const {
    return slots_[slot_of(hash, same)].value;
  }

  /// The number under a text if there's one; else keeps `value` for it and returns absent.
  template <class Same>
  std::uint32_t add(std::uint64_t hash, std::uint32_t value, const Same& same) {
    if ((used_ + 1) * 2 > slots_.size()) grow();
    Slot& slot = slots_[slot_of(hash, same)];
    if (slot.value != absent) return slot.value;
    slot = {hash, value};
    ++used_;
    return absent;
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t value = absent;
  };

  template <class Same>
  [[nodiscard]] std::size_t slot_of(std::uint64_t hash, const Same& same) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>(hash) & mask;
    while (slots_[at].value != absent && !(slots_[at].hash == hash && same(slots_[at].value))) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    HugeTable<Slot> old(slots_.size() * 2, Slot{});
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.value != absent) slots_[slot_of(slot.hash, [](std::uint32_t) { return false; })] = slot;
    }
  }

  HugeTable<Slot> slots_;
  std::size_t used_ = 0;
};

/// The same for keys that are mostly small numbers, as torch's records are: those are their own index.
class KeyIndex {
 public:
  static constexpr std::uint32_t absent = HashIndex::absent;

  /// Numbers from `limit` up are hashed like any other text.
  explicit KeyIndex(std::size_t limit) : limit_(limit) {}

  template <class Same>
  [[nodiscard]] std::uint32_t find(std::string_view key, const Same& same) const {
    if (const auto number = small_number(key)) return *number < numbers_.size() ? numbers_[*number] : absent;
    return others_.find(HashIndex::hash(key), same);
  }

  template <class Same>
  std::uint32_t add(std::string_view key, std::uint32_t value, const Same& same) {
    const auto number = small_number(key);
    if (!number) return others_.add(HashIndex::hash(key), value, same);
    if (*number >= numbers_.size()) numbers_.resize(std::max(*number + 1, numbers_.size() * 2), absent);
    const std::uint32_t known = numbers_[*number];
    if (known == absent) numbers_[*number] = value;
    return known;
  }

 private:
  /// Only in its shortest form, so that "07" isn't "7".
  [[nodiscard]] std::optional<std::size_t> small_number(std::string_view key) const {
    if (key.empty() || key.size() > 8 || (key.front() == '0' && key.size() > 1)) return std::nullopt;
    std::size_t number = 0;
    for (const char c : key) {
      if (c < '0' || c > '9') return std::nullopt;
      number = number * 10 + static_cast<std::size_t>(c - '0');
    }
    if (number >= limit_) return std::nullopt;
    return number;
  }

  std::size_t limit_;
  HugeTable<std::uint32_t> numbers_;
  HashIndex others_;
};

}  // namespace ckpt::source

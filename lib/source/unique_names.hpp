// SPDX-License-Identifier: Apache-2.0
// Keeps the names of a file's tensors apart: the second of a name gets "#2", the third "#3". Names are remembered as
// 64-bit hashes only; were two to collide, the one would get a suffix that it didn't need.
#pragma once

#include "core/bytes.hpp"
#include "core/digest.hpp"
#include "source/huge_table.hpp"

#include <cstdint>
#include <string>
#include <unordered_map>

namespace ckpt::source {

/// Not thread-safe.
class UniqueNames {
 public:
  UniqueNames() : slots_(64, free_slot) {}

  /// The name itself if nobody has it yet, else the first free one with a suffix.
  std::string claim(std::string name) {
    const std::uint64_t hash = hash_of(name);
    if (add(hash)) return name;
    std::uint64_t suffix = suffixes_.try_emplace(hash, 1).first->second;
    std::string other;
    do {
      other = name + '#' + std::to_string(++suffix);
    } while (!add(hash_of(other)));
    suffixes_[hash] = suffix;
    return other;
  }

 private:
  static constexpr std::uint64_t free_slot = 0;

  static std::uint64_t hash_of(const std::string& name) {
    const std::uint64_t hash = xxh3_64(as_bytes(name));
    return hash == free_slot ? 1 : hash;
  }

  /// False if it's there already.
  bool add(std::uint64_t hash) {
    if (used_ * 2 >= slots_.size()) grow();
    std::uint64_t& slot = slots_[place_of(hash)];
    if (slot == hash) return false;
    slot = hash;
    ++used_;
    return true;
  }

  [[nodiscard]] std::size_t place_of(std::uint64_t hash) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = static_cast<std::size_t>(hash) & mask;
    while (slots_[at] != free_slot && slots_[at] != hash) at = (at + 1) & mask;
    return at;
  }

  void grow() {
    HugeTable<std::uint64_t> old(slots_.size() * 4, free_slot);
    old.swap(slots_);
    for (const std::uint64_t hash : old) {
      if (hash != free_slot) slots_[place_of(hash)] = hash;
    }
  }

  HugeTable<std::uint64_t> slots_;
  std::size_t used_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> suffixes_;  ///< the last one given to a name that clashed
};

}  // namespace ckpt::source

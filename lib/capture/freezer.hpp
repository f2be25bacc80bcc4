// SPDX-License-Identifier: Apache-2.0
// Freezes memory: by write-protecting its pages (userfaultfd), and by copying what can't be protected. What protecting
// needs (a descriptor and a few threads) the whole process shares.
#pragma once

#include "capture/frozen_memory.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ckpt::capture {

struct FreezerOptions {
  Way way = Way::automatic;
  std::uint64_t memory = 0;  ///< bytes that may be set aside at a time, over all that one freezer froze; 0: the default
  double patience = 60;      ///< seconds that anyone waits for room in it, before a save fails
  /// Where everything is copied: the pages of `memory` are made now, and not by the first copies.
  bool ready = false;
};

/// Nothing if pages can be write-protected here; else why not.
[[nodiscard]] std::string why_not_protect();

/// A quarter of what this process may still take, by /proc/meminfo and its cgroup's limits, shared by `processes`.
[[nodiscard]] std::uint64_t default_memory(std::uint32_t processes);

/// Thread-safe. What it froze may outlive it.
class Freezer {
 public:
  /// Starts what is slow to start. Throws invalid_argument (less than 2 MiB of memory); unsupported (Way::protect where
  /// it isn't possible).
  explicit Freezer(const FreezerOptions& options);
  Freezer(const Freezer&) = delete;
  Freezer& operator=(const Freezer&) = delete;
  ~Freezer();

  /// What will be frozen. Ranges may overlap, be empty, and be frozen by others already. Where all is copied, the
  /// memory for it is made ready here, so this is best said before the moment: a copy into fresh memory takes twice as
  /// long.
  [[nodiscard]] std::shared_ptr<FrozenMemory> prepare(std::vector<MemoryRange> ranges);

 private:
  class Implementation;
  std::shared_ptr<Implementation> implementation_;
};

}  // namespace ckpt::capture

// SPDX-License-Identifier: Apache-2.0
// Memory as it was at one moment, while its owner goes on writing to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ckpt::capture {

struct MemoryRange {
  const std::byte* begin = nullptr;
  std::uint64_t size = 0;
  bool copy = false;    ///< never protect it: devices write to it
  bool steady = false;  ///< nobody writes to it from the first read() on: neither protected nor copied
};

enum class Way {
  automatic,  ///< protect what can be protected, copy the rest
  copy,
  protect,  ///< Errc::unsupported where that isn't possible at all; what can't be protected is copied nevertheless
};

/// Times in seconds, sizes in bytes.
struct FreezeTimings {
  double freeze_seconds = 0;
  double fault_seconds = 0;            ///< that writers waited for what they wrote to, added up
  double wait_seconds = 0;             ///< of both: for room
  std::uint64_t protected_bytes = 0;   ///< of the ranges
  std::uint64_t copied_bytes = 0;      ///< of the ranges, at the moment
  std::uint64_t aside_bytes = 0;       ///< of the protected: copied since
  std::uint64_t peak_aside_bytes = 0;  ///< the most that was held at a time, by this and by others of its freezer
  std::uint64_t waves = 1;
  std::string why_copied;  ///< empty: nothing was
};

/// Thread-safe. The memory itself is looked at only until it's released: by then it may be unmapped.
class FrozenMemory {
 public:
  virtual ~FrozenMemory() = default;  ///< releases the rest

  /// The moment; once. `begun` is called as soon as read() may be: from the same thread, before anything is waited for.
  /// Returns when the memory may be written to. What must be copied and is larger than the room for it is copied in
  /// waves, while others read and release, in whatever order: Errc::busy if no room comes for a minute. After that
  /// Error everything is released.
  virtual void freeze(const std::function<void()>& begun) = 0;

  [[nodiscard]] virtual std::size_t count() const = 0;
  [[nodiscard]] virtual std::uint64_t size(std::size_t range) const = 0;
  /// Exactly the bytes [offset, offset + into.size()) of a range, as at the moment. They mustn't be released. Throws
  /// Errc::io if the owner has unmapped or dropped them since, or a writer waited for room for so long that it was let
  /// through. `into` is filled with anything then.
  virtual void read(std::size_t range, std::uint64_t offset, std::span<std::byte> into) const = 0;
  /// These bytes won't be read again. Said once of each.
  virtual void release(std::size_t range, std::uint64_t offset, std::uint64_t size) = 0;
  /// True if all is released, so that the memory won't be looked at again.
  [[nodiscard]] virtual bool is_released() const = 0;
  [[nodiscard]] virtual FreezeTimings timings() const = 0;
};

}  // namespace ckpt::capture

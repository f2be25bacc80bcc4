// SPDX-License-Identifier: Apache-2.0
// The pieces of frozen memory, each in one of four states: live (its bytes are in the owner's memory only, where no one
// may write to them yet), aside (they have been copied), lost (they're gone) and done (nobody will read them again).
//
// Readers take no lock: they copy from the owner's memory and look afterwards whether the chunk was still live, since
// it's copied aside before anyone may write. What changes a state does so under a lock, one of a few for all chunks.
#pragma once

#include "capture/aside_memory.hpp"
#include "capture/frozen_layout.hpp"
#include "capture/page_guard.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

namespace ckpt::capture {

/// Lives in mapped memory. Thread-safe.
class FrozenChunks final : public GuardedMemory {
 public:
  /// Who waits for room gives up after `patience` nanoseconds. `guard` may be none if nothing is to be protected.
  FrozenChunks(FrozenLayout layout, PageGuard* guard, AsideMemory& aside, std::int64_t patience);

  [[nodiscard]] std::size_t count() const { return chunks_.size(); }
  /// The first so many are protected where they lie; the others are cells of the tape.
  [[nodiscard]] std::size_t protected_count() const { return protected_count_; }
  [[nodiscard]] Interval place(std::size_t chunk) const;

  /// Copies a chunk whose owner isn't running now. False if there's no room; true also if nobody needs it any more.
  [[nodiscard]] bool set_aside(std::size_t chunk);

  /// Throws io.
  void read(std::size_t range, std::uint64_t offset, std::span<std::byte> into) const;
  /// True for the call that released the last byte.
  [[nodiscard]] bool release(std::size_t range, std::uint64_t offset, std::uint64_t size) noexcept;
  void release_all() noexcept;

  [[nodiscard]] std::int64_t fault_nanoseconds() const noexcept { return fault_; }
  [[nodiscard]] std::int64_t wait_nanoseconds() const noexcept { return wait_; }
  [[nodiscard]] std::uint64_t aside_bytes() const noexcept { return aside_bytes_; }
  [[nodiscard]] std::uint64_t peak_aside_bytes() const noexcept { return peak_; }

  Answer keep(std::uintptr_t page, bool waits) noexcept override;
  [[nodiscard]] bool has_room(std::uint64_t size) const noexcept override { return aside_.has_room(size); }
  void lose(Interval at) noexcept override;
  [[nodiscard]] Interval next_needed(Interval at) const noexcept override;
  [[nodiscard]] Interval next_wanted(std::uintptr_t page) const noexcept override;
  [[nodiscard]] std::span<const Interval> watched() const noexcept override { return layout_.watched; }
  void note_wait(std::int64_t nanoseconds, std::int64_t for_room) noexcept override;

 private:
  enum class State : std::uint8_t { live, aside, lost, done };
  struct Chunk {
    Interval at;  ///< addresses, or a part of the tape
    std::atomic<State> state = State::live;
    std::atomic<bool> gone = false;  ///< unmapped or dropped: if it's still live, it's lost
    std::byte* copy = nullptr;
    std::int64_t waiting_since = 0;
    std::atomic<std::uint64_t> unreleased = 0;  ///< bytes of ranges, of all that it's part of
  };

  [[nodiscard]] std::mutex& lock_of(const Chunk& chunk) const;
  [[nodiscard]] std::size_t first_chunk(std::uintptr_t address) const;
  template <class Visit>
  void visit(std::size_t range, std::uint64_t offset, std::uint64_t size, Visit&& visit) const;
  [[nodiscard]] bool is_on_tape(const Chunk& chunk) const { return &chunk >= chunks_.data() + protected_count_; }
  void read_part(const Chunk& chunk, std::uintptr_t address, std::uintptr_t place, std::span<std::byte> into) const;
  [[nodiscard]] bool read_directly(const Chunk& chunk, std::uintptr_t address, std::span<std::byte> into) const;
  void copy_now(const Chunk& chunk, std::byte* to) const;
  void note_peak() noexcept;
  void finish(Chunk& chunk) noexcept;

  FrozenLayout layout_;
  PageGuard* guard_;
  AsideMemory& aside_;
  std::int64_t patience_;
  MappedVector<Chunk> chunks_;
  std::size_t protected_count_ = 0;
  std::atomic<std::uint64_t> unreleased_ = 0;  ///< chunks
  std::atomic<bool> is_given_up_ = false;      ///< a writer waited for room for too long: the save has failed
  mutable std::array<std::mutex, 64> locks_;
  std::atomic<std::int64_t> fault_ = 0;
  std::atomic<std::int64_t> wait_ = 0;
  std::atomic<std::uint64_t> aside_bytes_ = 0;
  std::atomic<std::uint64_t> peak_ = 0;
};

}  // namespace ckpt::capture

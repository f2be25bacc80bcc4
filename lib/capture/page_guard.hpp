// SPDX-License-Identifier: Apache-2.0
// Lets no one write to a protected page before its content is kept. One for the whole process: the kernel allows one
// watcher of a page only, and two saves may hold the same pages at a time.
#pragma once

#include "capture/mapped_memory.hpp"
#include "capture/userfault.hpp"

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

namespace ckpt::capture {

/// In nanoseconds, of the monotonic clock.
[[nodiscard]] std::int64_t clock_now() noexcept;

/// Memory that someone needs as it is, as the guard sees it: its threads call this, and so none of it may allocate,
/// touch the heap, or wait for anyone who might wait for a page. All of it lives in mapped memory.
class GuardedMemory {
 public:
  virtual ~GuardedMemory() = default;
  struct Answer {
    enum class Kind {
      elsewhere,  ///< holds nothing at that page
      kept,       ///< doesn't need the page any more, nor the others of `at`
      no_room,    ///< has nowhere to copy it to; asked again when there's room, and after `deadline` at the latest
    };
    Kind kind = Kind::elsewhere;
    Interval at;
    std::int64_t deadline = 0;
  };

  /// `waits`: a writer does.
  virtual Answer keep(std::uintptr_t page, bool waits) noexcept = 0;
  [[nodiscard]] virtual bool has_room(std::uint64_t size) const noexcept = 0;
  /// The owner has unmapped these addresses, or dropped what they held. Takes no lock at all.
  virtual void lose(Interval at) noexcept = 0;
  /// The first piece within `at` that must stay protected; empty if there's none.
  [[nodiscard]] virtual Interval next_needed(Interval at) const noexcept = 0;
  [[nodiscard]] virtual std::span<const Interval> watched() const noexcept = 0;
  /// Where a writer that has just been let through to the page will probably come next; empty if that's not known.
  [[nodiscard]] virtual Interval next_wanted(std::uintptr_t page) const noexcept = 0;
  /// A writer waited so long, and so long of that for room.
  virtual void note_wait(std::int64_t nanoseconds, std::int64_t for_room) noexcept = 0;

 private:
  friend class PageGuard;
  GuardedMemory* next_ = nullptr;
  unsigned in_use_ = 0;  ///< by threads of the guard
};

/// Thread-safe.
class PageGuard {
 public:
  /// The process's own, made if there's none. Throws unsupported.
  [[nodiscard]] static std::shared_ptr<PageGuard> shared();

  PageGuard(const PageGuard&) = delete;
  PageGuard& operator=(const PageGuard&) = delete;

  /// From now on no page that it needs is made writable.
  void add(GuardedMemory& memory) noexcept;
  /// Stops watching what no one else watches. It needs nothing any more.
  void remove(GuardedMemory& memory) noexcept;

  /// Both return errno. Of memory that was added.
  [[nodiscard]] int watch(Interval at) const noexcept { return userfault_.watch(at); }
  [[nodiscard]] int protect(Interval at) noexcept;
  [[nodiscard]] bool protects_untouched() const noexcept { return userfault_.protects_untouched(); }
  /// Makes writable what no one needs any more.
  void lift(Interval at) noexcept;
  /// Returns when all memory that went before the call is known to be lost.
  void settle() noexcept;
  /// Something that a writer may have waited for has happened.
  void room_changed() noexcept;

 private:
  struct Waiting {
    std::uintptr_t page = 0;
    GuardedMemory* memory = nullptr;
    std::uint64_t size = 0;  ///< of the room
    std::int64_t since = 0;
    std::int64_t deadline = 0;
  };
  static constexpr unsigned most_threads = 4;

  PageGuard();
  ~PageGuard();
  void serve() noexcept;
  [[nodiscard]] bool next_writer(std::uintptr_t& page) noexcept;
  [[nodiscard]] UserfaultMessage take_message() noexcept;
  [[nodiscard]] bool pump() noexcept;
  void let_write(std::uintptr_t page) noexcept;
  void keep_ahead(std::uintptr_t page) noexcept;
  [[nodiscard]] Interval next_wanted(std::uintptr_t page) noexcept;
  void let_wait(const Waiting& waiting) noexcept;
  void wake_waiting(bool all) noexcept;
  [[nodiscard]] int lift_locked(Interval at) noexcept;
  [[nodiscard]] int lift_all(Interval at) noexcept;
  void poke() noexcept;

  Userfault userfault_;
  os::Fd poke_;
  int owner_;
  std::atomic<bool> stopping_ = false;

  std::mutex lead_;                         ///< held by the thread that reads messages
  std::atomic<std::uint64_t> reading_ = 0;  ///< odd while one is read and acted on

  std::mutex mutex_;  ///< of the list. Held over lifting: what is added meanwhile would be lifted unseen
  std::condition_variable unused_;
  GuardedMemory* first_ = nullptr;

  std::mutex waiting_mutex_;
  std::atomic<std::size_t> waiting_count_ = 0;
  std::array<Waiting, 1024> waiting_;

  std::array<std::thread, most_threads> threads_;
};

}  // namespace ckpt::capture

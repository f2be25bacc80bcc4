// SPDX-License-Identifier: Apache-2.0
// A few threads take turns at reading messages: one leads, reads until a writer is found, hands the lead on and serves
// that writer. So several writers are served at a time, and none of the threads ever waits for another one's copy.
//
// What is read from unprotected memory may be what came there after the owner unmapped it. The kernel says so, but only
// afterwards: whoever has read asks settle() before the bytes count.
#include "capture/page_guard.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <new>

namespace ckpt::capture {
namespace {

/// Between two looks at who has waited for too long.
constexpr int waiting_look_ms = 50;

/// So many pieces are kept before a writer who goes from one to the next gets to them.
constexpr int most_ahead = 8;

unsigned thread_count() { return std::clamp(std::thread::hardware_concurrency() / 2, 2U, 4U); }

}  // namespace

std::int64_t clock_now() noexcept {
  timespec now{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

std::shared_ptr<PageGuard> PageGuard::shared() {
  static std::mutex mutex;
  static std::weak_ptr<PageGuard> shared;
  const std::lock_guard lock(mutex);
  std::shared_ptr<PageGuard> guard = shared.lock();
  if (guard && guard->owner_ == ::getpid()) return guard;
  MappedAllocator<PageGuard> allocator;
  PageGuard* place = allocator.allocate(1);
  try {
    new (place) PageGuard();
  } catch (...) {
    allocator.deallocate(place, 1);
    throw;
  }
  guard = std::shared_ptr<PageGuard>(place, [](PageGuard* p) {
    if (p->owner_ != ::getpid()) return;  // a child's copy: without threads, and the descriptor is the parent's
    p->~PageGuard();
    MappedAllocator<PageGuard>().deallocate(p, 1);
  });
  shared = guard;
  return guard;
}

PageGuard::PageGuard() : poke_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), owner_(::getpid()) {
  if (!poke_.valid()) os::throw_errno(errno, "cannot make an event descriptor");
  // The process's signal handlers may do anything, and so they don't run here.
  sigset_t all;
  sigset_t before;
  (void)::sigfillset(&all);
  (void)::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (unsigned i = 0; i < thread_count(); ++i) {
      threads_[i] = std::thread([this] { serve(); });
      (void)::pthread_setname_np(threads_[i].native_handle(), "ckpt-guard");
    }
  } catch (const std::system_error&) {
    // Fewer threads do the same work.
  }
  (void)::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!threads_[0].joinable()) throw Error(Errc::busy, "cannot start a thread");
}

PageGuard::~PageGuard() {
  stopping_ = true;
  poke();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void PageGuard::poke() noexcept {
  const std::uint64_t one = 1;
  (void)!::write(poke_.get(), &one, sizeof one);
}

void PageGuard::serve() noexcept {
  while (true) {
    std::uintptr_t page = 0;
    {
      const std::lock_guard lead(lead_);
      if (!next_writer(page)) return;
    }
    let_write(page);
    keep_ahead(page);
  }
}

/// False in the end.
bool PageGuard::next_writer(std::uintptr_t& page) noexcept {
  while (!stopping_) {
    const UserfaultMessage message = take_message();
    if (message.kind == UserfaultMessage::Kind::write) {
      page = message.at.begin;
      return true;
    }
    if (message.kind == UserfaultMessage::Kind::gone) continue;
    std::array<pollfd, 2> events = {pollfd{.fd = userfault_.descriptor(), .events = POLLIN, .revents = 0},
                                    pollfd{.fd = poke_.get(), .events = POLLIN, .revents = 0}};
    (void)::poll(events.data(), events.size(), waiting_count_ > 0 ? waiting_look_ms : -1);
    if (!stopping_ && (events[1].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      (void)!::read(poke_.get(), &count, sizeof count);
    }
    wake_waiting(false);
  }
  return false;
}

/// With the lead.
UserfaultMessage PageGuard::take_message() noexcept {
  ++reading_;
  const UserfaultMessage message = userfault_.read_message();
  if (message.kind == UserfaultMessage::Kind::gone) {
    const std::lock_guard lock(mutex_);
    for (GuardedMemory* memory = first_; memory != nullptr; memory = memory->next_) memory->lose(message.at);
  }
  ++reading_;
  return message;
}

/// Reads what has come, for those who can't go on without; writers are sent to ask again. The kernel hands out writers
/// first: they're held until there are no more, so that they don't come back at once. False if someone else reads.
bool PageGuard::pump() noexcept {
  const std::unique_lock lead(lead_, std::try_to_lock);
  if (!lead.owns_lock()) return false;
  std::array<Interval, 256> writers;
  std::size_t count = 0;
  while (count < writers.size()) {
    const UserfaultMessage message = take_message();
    if (message.kind == UserfaultMessage::Kind::none) break;
    if (message.kind == UserfaultMessage::Kind::write) writers[count++] = message.at;
  }
  for (std::size_t i = 0; i < count; ++i) userfault_.wake(writers[i]);
  return true;
}

void PageGuard::settle() noexcept {
  while (userfault_.is_memory_going()) {
    (void)pump();
    (void)::sched_yield();
  }
  // Read by then, but is it acted on?
  const std::uint64_t reading = reading_;
  while (reading % 2 != 0 && reading_ == reading) (void)::sched_yield();
}

void PageGuard::let_write(std::uintptr_t page) noexcept {
  const std::int64_t since = clock_now();
  // Where no one holds the page, protection has been left over by memory that was moved.
  const std::uintptr_t cell = page / cell_size * cell_size;
  Interval unneeded{page, page};
  bool is_held = false;
  {
    std::unique_lock lock(mutex_);
    bool has_room = true;
    for (GuardedMemory* memory = first_; memory != nullptr && has_room; memory = memory->next_) {
      ++memory->in_use_;
      lock.unlock();
      const GuardedMemory::Answer answer = memory->keep(page, true);
      if (answer.kind == GuardedMemory::Answer::Kind::kept) {
        unneeded.begin = std::min(unneeded.begin, answer.at.begin);
        unneeded.end = std::max(unneeded.end, answer.at.end);
        is_held = true;
      } else if (answer.kind == GuardedMemory::Answer::Kind::no_room) {
        let_wait(
            {.page = page, .memory = memory, .size = answer.at.size(), .since = since, .deadline = answer.deadline});
        has_room = false;
      }
      lock.lock();
      if (--memory->in_use_ == 0) unused_.notify_all();
    }
    if (!has_room) return;
  }
  lift(is_held ? unneeded : Interval{cell, cell + cell_size});
  // Also where the page is needed again by now: then the writer comes back.
  userfault_.wake({page, page + page_size()});
  if (!is_held) return;
  const std::int64_t waited = clock_now() - since;
  const std::lock_guard lock(mutex_);
  for (GuardedMemory* memory = first_; memory != nullptr; memory = memory->next_) {
    for (const Interval& at : memory->watched()) {
      if (page >= at.begin && page < at.end) {
        memory->note_wait(waited, 0);
        return;
      }
    }
  }
}

/// While nobody else waits.
void PageGuard::keep_ahead(std::uintptr_t page) noexcept {
  for (int i = 0; i < most_ahead; ++i) {
    pollfd writers{.fd = userfault_.descriptor(), .events = POLLIN, .revents = 0};
    if (stopping_ || ::poll(&writers, 1, 0) != 0) return;
    const Interval next = next_wanted(page);
    if (next.empty()) return;
    page = next.begin;
    {
      std::unique_lock lock(mutex_);
      for (GuardedMemory* memory = first_; memory != nullptr; memory = memory->next_) {
        ++memory->in_use_;
        lock.unlock();
        (void)memory->keep(page, false);
        lock.lock();
        if (--memory->in_use_ == 0) unused_.notify_all();
      }
    }
    lift(next);
  }
}

Interval PageGuard::next_wanted(std::uintptr_t page) noexcept {
  const std::lock_guard lock(mutex_);
  for (const GuardedMemory* memory = first_; memory != nullptr; memory = memory->next_) {
    const Interval next = memory->next_wanted(page);
    if (!next.empty()) return next;
  }
  return {};
}

void PageGuard::let_wait(const Waiting& waiting) noexcept {
  bool is_first = false;
  bool is_full = false;
  {
    const std::lock_guard lock(waiting_mutex_);
    is_full = waiting_count_ == waiting_.size();
    is_first = waiting_count_ == 0;
    if (!is_full) waiting_[waiting_count_++] = waiting;
  }
  if (is_full) {
    (void)::usleep(1000);
    userfault_.wake({waiting.page, waiting.page + page_size()});
  }
  if (is_first) poke();  // whoever leads must look at the clock from now on
  // Room that came in between has woken no one.
  if (waiting.memory->has_room(waiting.size)) wake_waiting(true);
}

/// All, or those whose time is over: they try again.
void PageGuard::wake_waiting(bool all) noexcept {
  if (waiting_count_ == 0) return;
  const std::lock_guard lock(waiting_mutex_);
  const std::int64_t now = clock_now();
  std::size_t left = 0;
  for (std::size_t i = 0; i < waiting_count_; ++i) {
    const Waiting waiting = waiting_[i];
    if (!all && now < waiting.deadline) {
      waiting_[left++] = waiting;
      continue;
    }
    waiting.memory->note_wait(now - waiting.since, now - waiting.since);
    userfault_.wake({waiting.page, waiting.page + page_size()});
  }
  waiting_count_ = left;
}

void PageGuard::room_changed() noexcept { wake_waiting(true); }

int PageGuard::protect(Interval at) noexcept {
  while (true) {
    const int error = userfault_.protect(at);
    if (error != EAGAIN) return error;
    settle();
  }
}

void PageGuard::lift(Interval at) noexcept {
  while (true) {
    int error = 0;
    {
      const std::lock_guard lock(mutex_);
      error = lift_locked(at);
    }
    if (error != EAGAIN) return;
    settle();
  }
}

int PageGuard::lift_locked(Interval at) noexcept {
  while (!at.empty()) {
    Interval needed{at.end, at.end};
    for (const GuardedMemory* memory = first_; memory != nullptr; memory = memory->next_) {
      const Interval next = memory->next_needed(at);
      if (!next.empty() && next.begin < needed.begin) needed = next;
    }
    if (at.begin < needed.begin && lift_all({at.begin, needed.begin}) == EAGAIN) return EAGAIN;
    at.begin = std::max(at.begin, needed.end);
  }
  return 0;
}

int PageGuard::lift_all(Interval at) noexcept {
  const int error = userfault_.lift(at);
  if (error == 0 || error == EAGAIN) return error;
  // Older kernels take no more than one mapping at a time, and none takes what was unmapped.
  for (std::uintptr_t page = at.begin; page < at.end; page += page_size()) {
    if (userfault_.lift({page, page + page_size()}) == EAGAIN) return EAGAIN;
  }
  return 0;
}

void PageGuard::add(GuardedMemory& memory) noexcept {
  settle();  // what was unmapped there before is none of its business
  const std::lock_guard lock(mutex_);
  memory.next_ = first_;
  first_ = &memory;
}

void PageGuard::remove(GuardedMemory& memory) noexcept {
  {
    std::unique_lock lock(mutex_);
    unused_.wait(lock, [&] { return memory.in_use_ == 0; });
    GuardedMemory** link = &first_;
    while (*link != &memory) link = &(*link)->next_;
    *link = memory.next_;
    for (Interval at : memory.watched()) {
      while (!at.empty()) {
        Interval watched{at.end, at.end};  // the first piece that another one watches
        for (const GuardedMemory* other = first_; other != nullptr; other = other->next_) {
          for (const Interval& theirs : other->watched()) {
            if (theirs.end > at.begin && theirs.begin < watched.begin) watched = theirs;
          }
        }
        // What the owner has unmapped is not watched any more: no failure.
        if (at.begin < watched.begin) (void)userfault_.unwatch({at.begin, watched.begin});
        at.begin = std::max(at.begin, watched.end);
      }
    }
  }
  wake_waiting(true);
}

}  // namespace ckpt::capture

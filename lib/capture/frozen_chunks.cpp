// SPDX-License-Identifier: Apache-2.0
#include "capture/frozen_chunks.hpp"

#include "capture/owner_memory.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace ckpt::capture {

FrozenChunks::FrozenChunks(FrozenLayout layout, PageGuard* guard, AsideMemory& aside, std::int64_t patience)
    : layout_(std::move(layout)),
      guard_(guard),
      aside_(aside),
      patience_(patience),
      chunks_(layout_.protected_chunks.size() + (layout_.tape_size + cell_size - 1) / cell_size),
      protected_count_(layout_.protected_chunks.size()) {
  for (std::size_t i = 0; i < protected_count_; ++i) chunks_[i].at = layout_.protected_chunks[i];
  for (std::size_t i = protected_count_; i < chunks_.size(); ++i) {
    const std::uint64_t begin = (i - protected_count_) * cell_size;
    chunks_[i].at = {begin, std::min<std::uint64_t>(begin + cell_size, layout_.tape_size)};
  }
  unreleased_ = chunks_.size();
  for (std::size_t range = 0; range < layout_.ranges.size(); ++range) {
    visit(range, 0, layout_.ranges[range].size,
          [&](std::size_t chunk, auto, auto, std::uint64_t size, auto) { chunks_[chunk].unreleased += size; });
  }
}

Interval FrozenChunks::place(std::size_t chunk) const { return chunks_[chunk].at; }

std::mutex& FrozenChunks::lock_of(const Chunk& chunk) const {
  return locks_[static_cast<std::size_t>(&chunk - chunks_.data()) % locks_.size()];
}

/// The first protected chunk that ends behind the address.
std::size_t FrozenChunks::first_chunk(std::uintptr_t address) const {
  const auto end = chunks_.begin() + static_cast<std::ptrdiff_t>(protected_count_);
  const auto found = std::upper_bound(chunks_.begin(), end, address,
                                      [](std::uintptr_t a, const Chunk& chunk) { return a < chunk.at.end; });
  return static_cast<std::size_t>(found - chunks_.begin());
}

/// Calls visit(chunk, address, place in terms of the chunk's, size, bytes since `offset`) for each part.
template <class Visit>
void FrozenChunks::visit(std::size_t range, std::uint64_t offset, std::uint64_t size, Visit&& visit) const {
  const RangePlace& place = layout_.ranges[range];
  std::uint64_t done = 0;
  while (done < size) {
    const std::uint64_t at = offset + done;
    const bool in_middle = at >= place.middle && at < place.tail;
    const std::uintptr_t address = place.begin + at;
    std::uintptr_t spot = address;
    std::uint64_t end = place.tail;  // of what stands together there
    if (at < place.middle) {
      spot = place.head_on_tape + at;
      end = place.middle;
    } else if (!in_middle) {
      spot = place.tail_on_tape + at - place.tail;
      end = place.size;
    }
    const std::size_t index = in_middle ? first_chunk(address) : protected_count_ + spot / cell_size;
    const std::uint64_t part = std::min({size - done, end - at, chunks_[index].at.end - spot});
    visit(index, address, spot, part, done);
    done += part;
  }
}

void FrozenChunks::read(std::size_t range, std::uint64_t offset, std::span<std::byte> into) const {
  visit(range, offset, into.size(),
        [&](std::size_t chunk, std::uintptr_t address, std::uintptr_t spot, std::uint64_t size, std::uint64_t done) {
          read_part(chunks_[chunk], address, spot, into.subspan(done, size));
        });
}

void FrozenChunks::read_part(const Chunk& chunk, std::uintptr_t address, std::uintptr_t spot,
                             std::span<std::byte> into) const {
  State state = chunk.state.load(std::memory_order_acquire);
  if (state == State::live) {
    bool is_read = read_own_memory(address, into);
    if (!is_read && is_on_tape(chunk)) is_read = read_directly(chunk, address, into);
    if (guard_ != nullptr && !is_on_tape(chunk)) guard_->settle();
    std::atomic_thread_fence(std::memory_order_acquire);
    const bool is_gone = chunk.gone;
    state = chunk.state.load(std::memory_order_acquire);
    if (state == State::live) {
      if (is_read && !is_gone) return;
      state = State::lost;
    }
  }
  if (state == State::aside) {
    std::memcpy(into.data(), chunk.copy + (spot - chunk.at.begin), into.size());
    return;
  }
  if (state == State::done) throw Error(Errc::invalid_argument, "memory is read that was released");
  if (is_given_up_) {
    throw Error(Errc::io,
                "memory that was to be saved was overwritten, as there was no room to set it aside for too long")
        .with_hint("allow more memory to be set aside, or save to something faster");
  }
  throw Error(Errc::io, "memory was unmapped or dropped by its owner before it was saved");
}

/// The kernel reads no device's memory. The owner waits for this chunk, and so for this lock; by way of memory of our
/// own, since `into` may be memory that someone froze and gave back, and writing there may wait for a lock as well.
bool FrozenChunks::read_directly(const Chunk& chunk, std::uintptr_t address, std::span<std::byte> into) const {
  MappedVector<std::byte> between(into.size());
  {
    const std::lock_guard lock(lock_of(chunk));
    if (chunk.state != State::live) return false;
    std::memcpy(between.data(), bytes_at(address), between.size());
  }
  std::memcpy(into.data(), between.data(), between.size());
  return true;
}

/// The owner waits, or no one protects it.
void FrozenChunks::copy_now(const Chunk& chunk, std::byte* to) const {
  if (!is_on_tape(chunk)) {
    std::memcpy(to, bytes_at(chunk.at.begin), chunk.at.size());
    return;
  }
  const auto first =
      std::upper_bound(layout_.tape.begin(), layout_.tape.end(), chunk.at.begin,
                       [](std::uint64_t a, const TapePiece& piece) { return a < piece.at + piece.size; });
  for (auto piece = first; piece != layout_.tape.end() && piece->at < chunk.at.end; ++piece) {
    const std::uint64_t begin = std::max<std::uint64_t>(piece->at, chunk.at.begin);
    const std::uint64_t end = std::min<std::uint64_t>(piece->at + piece->size, chunk.at.end);
    std::memcpy(to + (begin - chunk.at.begin), bytes_at(piece->address + (begin - piece->at)), end - begin);
  }
}

bool FrozenChunks::set_aside(std::size_t index) {
  Chunk& chunk = chunks_[index];
  const std::lock_guard lock(lock_of(chunk));
  if (chunk.state != State::live) return true;
  std::byte* copy = aside_.take(chunk.at.size());
  if (copy == nullptr) return false;
  note_peak();
  copy_now(chunk, copy);
  chunk.copy = copy;
  chunk.state.store(State::aside, std::memory_order_release);
  return true;
}

void FrozenChunks::note_peak() noexcept {
  const std::uint64_t used = aside_.used();
  std::uint64_t peak = peak_;
  while (used > peak && !peak_.compare_exchange_weak(peak, used)) {
  }
}

GuardedMemory::Answer FrozenChunks::keep(std::uintptr_t page, bool waits) noexcept {
  const std::size_t index = first_chunk(page);
  if (index == protected_count_ || page < chunks_[index].at.begin) return {};
  Chunk& chunk = chunks_[index];
  const Answer kept{.kind = Answer::Kind::kept, .at = chunk.at};
  const std::lock_guard lock(lock_of(chunk));
  if (chunk.state != State::live || chunk.gone) return kept;
  std::byte* copy = is_given_up_ ? nullptr : aside_.take(chunk.at.size());
  if (copy == nullptr) {
    if (!waits) return {.kind = Answer::Kind::no_room, .at = chunk.at};
    const std::int64_t now = clock_now();
    if (chunk.waiting_since == 0) chunk.waiting_since = now;
    const std::int64_t deadline = chunk.waiting_since + patience_;
    if (now < deadline && !is_given_up_) return {.kind = Answer::Kind::no_room, .at = chunk.at, .deadline = deadline};
    // Better a save that fails than a training that hangs. Nothing of it is worth another wait.
    is_given_up_ = true;
    chunk.state = State::lost;
    return kept;
  }
  note_peak();
  const bool is_read = read_own_memory(chunk.at.begin, {copy, chunk.at.size()});
  guard_->settle();
  if (!is_read) chunk.gone = true;
  if (chunk.gone) {
    aside_.give_back(copy, chunk.at.size());
    return kept;
  }
  chunk.copy = copy;
  aside_bytes_ += chunk.at.size();
  chunk.state.store(State::aside, std::memory_order_release);
  return kept;
}

void FrozenChunks::lose(Interval at) noexcept {
  for (std::size_t i = first_chunk(at.begin); i < protected_count_ && chunks_[i].at.begin < at.end; ++i) {
    chunks_[i].gone = true;
  }
}

Interval FrozenChunks::next_needed(Interval at) const noexcept {
  for (std::size_t i = first_chunk(at.begin); i < protected_count_ && chunks_[i].at.begin < at.end; ++i) {
    if (chunks_[i].state == State::live && !chunks_[i].gone) return chunks_[i].at;
  }
  return {};
}

/// The chunk that follows, if the one before was written to as well. Not at the cost of writers who'll need the room.
Interval FrozenChunks::next_wanted(std::uintptr_t page) const noexcept {
  const std::size_t i = first_chunk(page);
  if (i == 0 || i + 1 >= protected_count_) return {};
  const Chunk& before = chunks_[i - 1];
  const Chunk& here = chunks_[i];
  const Chunk& after = chunks_[i + 1];
  if (before.at.end != here.at.begin || here.at.end != after.at.begin) return {};
  if (before.state != State::aside || here.state != State::aside || after.state != State::live) return {};
  if (after.gone || is_given_up_ || aside_.used() + after.at.size() > aside_.budget() / 2) return {};
  return after.at;
}

void FrozenChunks::note_wait(std::int64_t nanoseconds, std::int64_t for_room) noexcept {
  fault_ += nanoseconds;
  wait_ += for_room;
}

/// Nobody will read it again.
void FrozenChunks::finish(Chunk& chunk) noexcept {
  State before{};
  {
    const std::lock_guard lock(lock_of(chunk));
    before = chunk.state.exchange(State::done);
    if (before == State::done) return;
    if (before == State::aside) aside_.give_back(std::exchange(chunk.copy, nullptr), chunk.at.size());
  }
  if (before != State::aside) aside_.note_change();
  if (guard_ != nullptr) {
    if (!is_on_tape(chunk) && before != State::aside) guard_->lift(chunk.at);
    guard_->room_changed();
  }
}

bool FrozenChunks::release(std::size_t range, std::uint64_t offset, std::uint64_t size) noexcept {
  bool is_last = false;
  visit(range, offset, size, [&](std::size_t index, auto, auto, std::uint64_t bytes, auto) {
    Chunk& chunk = chunks_[index];
    if (chunk.unreleased.fetch_sub(bytes) != bytes) return;
    finish(chunk);
    if (--unreleased_ == 0) is_last = true;
  });
  return is_last;
}

void FrozenChunks::release_all() noexcept {
  for (Chunk& chunk : chunks_) {
    if (chunk.unreleased.exchange(0) == 0) continue;
    finish(chunk);
    --unreleased_;
  }
}

}  // namespace ckpt::capture

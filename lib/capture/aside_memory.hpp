// SPDX-License-Identifier: Apache-2.0
// The memory into which is copied what must be kept: slots of one cell, huge pages where there are some, under one
// budget. First touching fresh pages costs as much as the copy itself, so slots that were used once are used again.
#pragma once

#include "capture/mapped_memory.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace ckpt::capture {

/// Thread-safe. Allocates nothing once it's made, so that the page guard's threads may use it. Lives in mapped memory.
class AsideMemory {
 public:
  /// `keep`: slots that are free stay with the process for the next copy; else most are returned once nobody uses any.
  AsideMemory(std::uint64_t budget, bool keep);
  AsideMemory(const AsideMemory&) = delete;
  AsideMemory& operator=(const AsideMemory&) = delete;
  ~AsideMemory();

  [[nodiscard]] std::uint64_t budget() const { return budget_; }
  [[nodiscard]] std::uint64_t used() const;

  /// Between these two, free slots are kept.
  void begin_use() noexcept;
  void end_use() noexcept;
  /// First touches so many bytes of slots, as far as the budget goes, if there aren't as many ready.
  void prepare(std::uint64_t size);

  /// At most cell_size bytes; nullptr if there's no room.
  [[nodiscard]] std::byte* take(std::uint64_t size) noexcept;
  void give_back(std::byte* memory, std::uint64_t size) noexcept;
  [[nodiscard]] bool has_room(std::uint64_t size) const noexcept;

  /// Counts what may let a waiting one go on.
  [[nodiscard]] std::uint64_t changes() const noexcept;
  void note_change() noexcept;
  /// False if the count was still `seen` at that time.
  [[nodiscard]] bool wait_for_change(std::uint64_t seen, std::chrono::steady_clock::time_point until) noexcept;

 private:
  [[nodiscard]] std::byte* slot(std::uint32_t index) const { return slots_ + index * cell_size; }
  void drop_one_ready() noexcept;

  std::uint64_t budget_;
  bool keep_;
  std::byte* reserved_ = nullptr;
  std::size_t reserved_size_ = 0;
  std::byte* slots_ = nullptr;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t used_ = 0;
  std::uint64_t users_ = 0;
  std::uint64_t changes_ = 0;
  MappedVector<std::uint32_t> ready_;  ///< free slots with pages: they count as held, too
  MappedVector<std::uint32_t> bare_;   ///< free slots without
};

}  // namespace ckpt::capture

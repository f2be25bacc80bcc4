// SPDX-License-Identifier: Apache-2.0
// Appends to a new file at the device's speed: bytes gather in aligned buffers that background threads write past
// the page cache. Every full 64 KiB granule is shown to a watcher while it's still hot, for checksums.
#pragma once

#include "os/aligned_buffer.hpp"
#include "os/fd.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace ckpt::os {

/// Used from one thread. Memory: writer_buffers * writer_buffer_size.
class DirectWriter {
 public:
  static constexpr std::uint64_t granule = 65536;
  using Watcher = std::function<void(std::span<const std::byte>)>;

  /// Takes a descriptor of an empty file that is open for writing. `watcher` sees each full granule once, in order.
  DirectWriter(Fd fd, std::string path, Watcher watcher);
  DirectWriter(const DirectWriter&) = delete;
  DirectWriter& operator=(const DirectWriter&) = delete;
  ~DirectWriter();

  [[nodiscard]] std::uint64_t position() const { return position_; }
  /// Errors of earlier writes come up here, or in finish().
  void append(std::span<const std::byte> data);
  void append_zeros(std::uint64_t count);
  /// What has been appended since the last full granule.
  [[nodiscard]] std::span<const std::byte> partial_granule() const;
  /// Writes what is left and syncs the file. Returns the descriptor: locks on it live on.
  [[nodiscard]] Fd finish();

 private:
  struct Piece {
    AlignedBuffer buffer;
    std::size_t size = 0;
    std::uint64_t offset = 0;
  };

  void hand_over();
  void work();
  void write_piece(const Piece& piece);
  void stop();

  Fd fd_;
  std::string path_;
  Watcher watcher_;
  std::uint64_t position_ = 0;
  Piece current_;
  std::atomic<bool> direct_ = false;  ///< a writer thread may find out that it doesn't work

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> full_;
  std::vector<AlignedBuffer> free_;
  std::size_t in_flight_ = 0;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

}  // namespace ckpt::os

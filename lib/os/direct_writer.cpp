// SPDX-License-Identifier: Apache-2.0
// Two writer threads keep the device's queue filled while the next buffer is being gathered.
#include "os/direct_writer.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ckpt::os {
namespace {

constexpr std::size_t writer_threads = 2;
constexpr std::size_t writer_buffers = 4;
constexpr std::size_t writer_buffer_size = 8U << 20U;
static_assert(writer_buffer_size % DirectWriter::granule == 0);

/// False where the file system has no direct I/O.
bool set_direct(const Fd& fd, bool on) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0) return false;
  return ::fcntl(fd.get(), F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace

DirectWriter::DirectWriter(Fd fd, std::string path, Watcher watcher)
    : fd_(std::move(fd)), path_(std::move(path)), watcher_(std::move(watcher)) {
  direct_ = set_direct(fd_, true);
}

DirectWriter::~DirectWriter() { stop(); }

void DirectWriter::append(std::span<const std::byte> data) {
  while (!data.empty()) {
    if (current_.buffer.capacity() == 0) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return error_ || !free_.empty() || in_flight_ + full_.size() < writer_buffers - 1; });
      if (error_) std::rethrow_exception(error_);
      if (free_.empty()) {
        current_.buffer.reserve(writer_buffer_size);
      } else {
        current_.buffer = std::move(free_.back());
        free_.pop_back();
      }
      current_.offset = position_;
    }
    // Copied up to the end of a granule at most, so that the watcher finds it in the cache.
    const std::size_t room = granule - current_.size % granule;
    const std::size_t count = std::min(room, data.size());
    std::memcpy(current_.buffer.data() + current_.size, data.data(), count);
    current_.size += count;
    position_ += count;
    data = data.subspan(count);
    if (count == room) watcher_({current_.buffer.data() + current_.size - granule, granule});
    if (current_.size == writer_buffer_size) hand_over();
  }
}

void DirectWriter::append_zeros(std::uint64_t count) {
  static constexpr std::array<std::byte, direct_alignment> zeros{};
  while (count > 0) {
    const std::uint64_t n = std::min<std::uint64_t>(count, zeros.size());
    append({zeros.data(), n});
    count -= n;
  }
}

std::span<const std::byte> DirectWriter::partial_granule() const {
  const std::size_t size = current_.size % granule;
  return {current_.buffer.data() + current_.size - size, size};
}

void DirectWriter::hand_over() {
  // A small file never pays for threads: they start with the first full buffer.
  while (threads_.size() < writer_threads) threads_.emplace_back([this] { work(); });
  {
    const std::lock_guard lock(mutex_);
    full_.push_back(std::exchange(current_, {}));
  }
  changed_.notify_all();
}

void DirectWriter::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || !full_.empty(); });
    if (full_.empty() || error_) return;
    Piece piece = std::move(full_.front());
    full_.pop_front();
    ++in_flight_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      write_piece(piece);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --in_flight_;
    free_.push_back(std::move(piece.buffer));
    if (failure && !error_) error_ = failure;
    changed_.notify_all();
  }
}

void DirectWriter::write_piece(const Piece& piece) {
  std::size_t done = 0;
  bool again = false;
  while (done < piece.size) {
    const ssize_t n =
        ::pwrite(fd_.get(), piece.buffer.data() + done, piece.size - done, static_cast<off_t>(piece.offset + done));
    if (n < 0 && errno == EINTR) continue;
    // Some file systems take the flag and refuse the write: then without it.
    if (n < 0 && errno == EINVAL && !again) {
      again = true;
      direct_ = false;
      if (set_direct(fd_, false)) continue;
      errno = EINVAL;
    }
    if (n < 0) throw_errno(errno, "cannot write '" + path_ + "'");
    done += static_cast<std::size_t>(n);
    // After a short write the rest may not be aligned any more.
    if (done < piece.size && done % direct_alignment != 0 && direct_.exchange(false)) set_direct(fd_, false);
  }
}

void DirectWriter::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

Fd DirectWriter::finish() {
  stop();
  if (error_) std::rethrow_exception(error_);
  // The aligned part of the last buffer still goes past the cache; only its tail of less than a page doesn't.
  Piece tail = std::exchange(current_, {});
  const std::size_t aligned = direct_ ? tail.size / direct_alignment * direct_alignment : 0;
  if (aligned >= granule) {
    const std::size_t size = std::exchange(tail.size, aligned);
    write_piece(tail);
    tail.size = size;
  }
  if (direct_) set_direct(fd_, false);
  const std::size_t written = aligned >= granule ? aligned : 0;
  if (tail.size > written) {
    write_at(fd_, tail.offset + written, {tail.buffer.data() + written, tail.size - written}, path_);
  }
  sync(fd_, path_);
  return std::move(fd_);
}

}  // namespace ckpt::os

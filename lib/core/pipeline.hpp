// SPDX-License-Identifier: Apache-2.0
// Work done in parallel and taken in order, with a bounded number of results alive at a time.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace ckpt {

/// The number of worker threads for a request of `jobs`; 0 asks for one a core.
[[nodiscard]] inline unsigned worker_count(unsigned jobs) {
  if (jobs != 0) return jobs;
  return std::max(1U, std::thread::hardware_concurrency());
}

/// As worker_count(), for work that waits for a device: a few reads in flight keep one busy, also on few cores.
[[nodiscard]] inline unsigned reader_count(unsigned jobs) {
  constexpr unsigned least_readers = 4;
  return std::max(least_readers, worker_count(jobs));
}

/// Runs produce(i) for each i in [0, count) on `workers` threads and consume(i, result) for each i in order on the
/// calling thread. At most `window` results exist at a time. The first exception of either side ends the rest and is
/// thrown here. With one item nothing is started.
template <class Produce, class Consume>
void run_ordered(std::size_t count, unsigned workers, std::size_t window, Produce&& produce, Consume&& consume) {
  using Result = std::invoke_result_t<Produce&, std::size_t>;
  if (count <= 1) {
    for (std::size_t i = 0; i < count; ++i) consume(i, produce(i));
    return;
  }
  window = std::max<std::size_t>(window, 1);
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::unique_ptr<Result>> slots(window);
  std::size_t next = 0;      // the first item that no worker has taken
  std::size_t consumed = 0;  // items given to consume
  std::exception_ptr error;

  const auto work = [&] {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return error || next == count || next < consumed + window; });
      if (error || next == count) return;
      const std::size_t i = next++;
      lock.unlock();
      try {
        auto result = std::make_unique<Result>(produce(i));
        lock.lock();
        slots[i % window] = std::move(result);
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        if (!error) error = std::current_exception();
      }
      changed.notify_all();
    }
  };

  std::vector<std::thread> threads;
  const auto join = [&] {
    for (std::thread& thread : threads) thread.join();
  };
  try {
    for (unsigned i = 0; i < std::min<std::size_t>(std::max(workers, 1U), count); ++i) threads.emplace_back(work);
    for (std::size_t i = 0; i < count; ++i) {
      std::unique_ptr<Result> result;
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return error || slots[i % window] != nullptr; });
        if (error) break;
        result = std::move(slots[i % window]);
      }
      consume(i, std::move(*result));
      result.reset();
      {
        const std::lock_guard lock(mutex);
        ++consumed;
      }
      changed.notify_all();
    }
  } catch (...) {
    {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
    changed.notify_all();
  }
  join();
  if (error) std::rethrow_exception(error);
}

/// Runs work(i) for each i in [0, count), in no order, on `workers` threads, of which the calling one is the first. The
/// first exception ends the rest and is thrown here.
template <class Work>
void run_parallel(std::size_t count, unsigned workers, Work&& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto take_items = [&] {
    try {
      for (std::size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  try {
    for (std::size_t t = 1; t < std::min<std::size_t>(workers, count); ++t) threads.emplace_back(take_items);
  } catch (const std::system_error&) {
    // Fewer threads than wished for do the same work.
  }
  take_items();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

/// Objects that are costly to make, lent to one user at a time: buffers, mostly.
template <class T>
class Pool {
 public:
  class Lease {
   public:
    Lease(Pool& pool, T item) : pool_(&pool), item_(std::move(item)) {}
    Lease(Lease&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), item_(std::move(other.item_)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(item_, other.item_);
      return *this;
    }
    ~Lease() {
      if (pool_ != nullptr) pool_->give_back(std::move(item_));
    }
    T& operator*() { return item_; }
    T* operator->() { return &item_; }

   private:
    Pool* pool_;
    T item_;
  };

  [[nodiscard]] Lease take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return Lease(*this, T{});
    Lease lease(*this, std::move(free_.back()));
    free_.pop_back();
    return lease;
  }

 private:
  void give_back(T item) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(item));
  }
  std::mutex mutex_;
  std::vector<T> free_;
};

}  // namespace ckpt

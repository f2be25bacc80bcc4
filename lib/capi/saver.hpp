// SPDX-License-Identifier: Apache-2.0
// What the saves of one rank share: where they go, how memory is frozen, and the thread that writes one after another.
#pragma once

#include "capture/freezer.hpp"
#include "run/rank_link.hpp"

#include <ckpt/save.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace ckpt::capi {

class Save;

struct SaverOptions {
  SaveOptions save;  ///< of all saves; without step, sources and meta
  capture::FreezerOptions freezer;
  std::shared_ptr<run::RankLink> link;  ///< nothing: no one wants to know whether this process is alive
  double alive_seconds = 1;
};

/// Thread-safe.
class Saver {
 public:
  /// Opens the store, or makes it, and starts the thread.
  explicit Saver(SaverOptions options);
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;
  /// The thread has ended by then.
  ~Saver() = default;

  [[nodiscard]] const SaveOptions& options() const { return options_.save; }
  [[nodiscard]] capture::Freezer& freezer() { return freezer_; }

  /// A save that is frozen or started, and not over yet.
  void watch(std::shared_ptr<Save> save);
  /// To be written after those before it. Throws invalid_argument once the saver is closed.
  void enqueue(std::shared_ptr<Save> save);
  /// Said by each save that is watched, once.
  void forget(const Save& save);
  [[nodiscard]] std::size_t pending() const;
  /// All that are watched, or have failed and told no one.
  [[nodiscard]] std::vector<std::shared_ptr<Save>> saves() const;
  /// Said by the save that is being written, as its bytes move: a sign of life for whoever supervises, now and then.
  void has_progress();
  /// Ends the thread once the queue is empty.
  void close();

 private:
  void work();

  const SaverOptions options_;
  capture::Freezer freezer_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Save>> queue_;
  std::vector<std::shared_ptr<Save>> watched_;
  bool closed_ = false;
  std::chrono::steady_clock::time_point next_alive_;  ///< one save's at a time
  std::thread thread_;
};

}  // namespace ckpt::capi

// SPDX-License-Identifier: Apache-2.0
// Tells the other side from time to time that this one is still there, as long as the object lives.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace ckpt::transport {

class SignOfLife {
 public:
  /// `send` is called on another thread. Once it throws it isn't called any more: who sends next meets the same.
  SignOfLife(std::chrono::milliseconds every, std::function<void()> send)
      : every_(every), send_(std::move(send)), thread_([this] { run(); }) {}
  SignOfLife(const SignOfLife&) = delete;
  SignOfLife& operator=(const SignOfLife&) = delete;
  ~SignOfLife() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, every_, [&] { return stop_; })) {
      try {
        send_();
      } catch (const std::exception&) {
        return;
      }
    }
  }

  std::chrono::milliseconds every_;
  std::function<void()> send_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace ckpt::transport

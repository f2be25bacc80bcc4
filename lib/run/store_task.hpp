// SPDX-License-Identifier: Apache-2.0
// Work on a store, in a process of its own: a file system that hangs takes that with it, and not the supervisor, which
// gives it up when it shows no sign of life for too long. The supervisor itself never touches the store.
#pragma once

#include "os/fd.hpp"

#include <ckpt/error.hpp>
#include <ckpt/monitor.hpp>

#include <sys/types.h>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ckpt::run {

/// What the work says while it goes on, in the process that does it. As a Monitor it may be used from any thread.
class TaskVoice final : public Monitor {
 public:
  explicit TaskVoice(os::Fd pipe) : pipe_(std::move(pipe)) {}

  void progress(const Progress& progress) override;
  void warning(std::string_view message) override;
  /// SIGTERM asks for it.
  [[nodiscard]] bool stop_requested() const override;
  /// Something for StoreTask::take_message().
  void tell(const nlohmann::json& message);

 private:
  friend class StoreTask;
  void put(const nlohmann::json& line);

  os::Fd pipe_;
  std::chrono::steady_clock::time_point last_sign_;
};

class StoreTask {
 public:
  using Work = std::function<nlohmann::json(TaskVoice& voice)>;

  /// Starts it. The calling process has one thread, and its signals are blocked.
  explicit StoreTask(const Work& work);
  StoreTask(const StoreTask&) = delete;
  StoreTask& operator=(const StoreTask&) = delete;
  /// Kills what still runs, and doesn't wait: who reaps children reaps it.
  ~StoreTask();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Readable when there's something for read().
  [[nodiscard]] int fd() const { return pipe_.get(); }
  /// Takes what it has said. False once it has said all.
  bool read();
  /// The process has been reaped.
  void set_ended() { pid_ = -1; }
  [[nodiscard]] bool has_ended() const { return ended_; }
  [[nodiscard]] std::chrono::steady_clock::time_point last_sign() const { return last_sign_; }

  /// The next warning or message that hasn't been taken.
  [[nodiscard]] std::optional<std::string> take_warning();
  [[nodiscard]] std::optional<nlohmann::json> take_message();

  /// What the work came to, once it has ended. Throws the Error that it threw; Errc::io if it died.
  [[nodiscard]] nlohmann::json result() const;

  void ask_to_stop() const;

 private:
  void take(std::string_view line);

  pid_t pid_ = -1;
  os::Fd pipe_;
  bool ended_ = false;
  std::string unread_;
  std::chrono::steady_clock::time_point last_sign_;
  std::vector<std::string> warnings_;
  std::vector<nlohmann::json> messages_;
  std::optional<nlohmann::json> result_;
  std::optional<Error> failure_;
};

}  // namespace ckpt::run

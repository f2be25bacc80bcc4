// SPDX-License-Identifier: Apache-2.0
// Looks at the store once a second, in a process of its own, and tells of new checkpoints.
#pragma once

#include "run/recovery.hpp"
#include "run/store_task.hpp"

#include <poll.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

class StoreWatch {
 public:
  explicit StoreWatch(std::string store) : store_(std::move(store)) {}

  void add_to(std::vector<pollfd>& watched) const;
  bool set_ended(pid_t pid) const;
  [[nodiscard]] std::vector<pid_t> pids() const;
  /// The latest news, if there are any. One that has died is started again: a store that can't be looked at for a while
  /// says nothing of the job.
  [[nodiscard]] std::optional<StoreNews> turn();

 private:
  std::string store_;
  std::unique_ptr<StoreTask> task_;
};

}  // namespace ckpt::run

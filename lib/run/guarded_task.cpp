// SPDX-License-Identifier: Apache-2.0
#include "run/guarded_task.hpp"

#include <fmt/format.h>
#include <utility>

namespace ckpt::run {

void GuardedTask::add_to(std::vector<pollfd>& watched) const {
  if (task_ && !task_->has_ended()) watched.push_back({.fd = task_->fd(), .events = POLLIN, .revents = 0});
}

bool GuardedTask::set_ended(pid_t pid) const {
  if (!task_ || task_->pid() != pid) return false;
  task_->set_ended();
  return true;
}

std::vector<pid_t> GuardedTask::pids() const {
  if (!task_ || task_->pid() < 0) return {};
  return {task_->pid()};
}

std::optional<nlohmann::json> GuardedTask::turn(std::chrono::steady_clock::time_point now, RunObserver& observer) {
  if (!task_) return std::nullopt;
  const bool goes_on = task_->read();
  while (const auto warning = task_->take_warning()) observer.warning(*warning);
  if (goes_on && now - task_->last_sign() > limit_) {
    task_.reset();
    throw Error(Errc::busy,
                fmt::format("store '{}' does not answer: no sign of life for {:.0f} s", store_, limit_.count()))
        .with_hint("its file system hangs; see --store-timeout");
  }
  if (goes_on) return std::nullopt;
  return std::exchange(task_, nullptr)->result();
}

std::optional<nlohmann::json> GuardedTask::take_message() const { return task_ ? task_->take_message() : std::nullopt; }

}  // namespace ckpt::run

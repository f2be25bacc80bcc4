// SPDX-License-Identifier: Apache-2.0
#include "run/store_watch.hpp"

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

namespace ckpt::run {
namespace {

using nlohmann::json;

constexpr auto pause = std::chrono::seconds(1);

json watch(const std::string& store, TaskVoice& voice) {
  std::optional<std::uint64_t> last;
  while (!voice.stop_requested()) {
    try {
      const StoreNews news = look(store);
      if (news.newest && news.newest != last) {
        last = news.newest;
        voice.tell({{"newest", *news.newest}, {"save_seconds", news.save_seconds ? json(*news.save_seconds) : json()}});
      }
    } catch (const Error&) {
      // Who saves or recovers says what is wrong with the store; the next look may be better.
    }
    voice.progress({.stage = "read"});
    std::this_thread::sleep_for(pause);
  }
  return {};
}

}  // namespace

void StoreWatch::add_to(std::vector<pollfd>& watched) const {
  if (task_ && !task_->has_ended()) watched.push_back({.fd = task_->fd(), .events = POLLIN, .revents = 0});
}

bool StoreWatch::set_ended(pid_t pid) const {
  if (!task_ || task_->pid() != pid) return false;
  task_->set_ended();
  return true;
}

std::vector<pid_t> StoreWatch::pids() const {
  if (!task_ || task_->pid() < 0) return {};
  return {task_->pid()};
}

std::optional<StoreNews> StoreWatch::turn() {
  if (!task_) task_ = std::make_unique<StoreTask>([store = store_](TaskVoice& voice) { return watch(store, voice); });
  const bool goes_on = task_->read();
  std::optional<StoreNews> news;
  while (const auto message = task_->take_message()) {
    news.emplace();
    news->newest = message->at("newest").get<std::uint64_t>();
    if (!message->at("save_seconds").is_null()) news->save_seconds = message->at("save_seconds").get<double>();
  }
  if (!goes_on) task_.reset();
  return news;
}

}  // namespace ckpt::run

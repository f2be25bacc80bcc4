// SPDX-License-Identifier: Apache-2.0
// Following a store: one thread looks for what is new, one for each destination brings it there.
#include <ckpt/sync.hpp>

#include "ops/shared_sync_observer.hpp"
#include "os/directory_watch.hpp"
#include "os/small_file.hpp"
#include "store/layout.hpp"
#include "transport/remote_shell.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto follow_pause = std::chrono::milliseconds(500);
constexpr auto remote_pause = std::chrono::seconds(5);
constexpr auto first_pause = std::chrono::milliseconds(500);
constexpr auto longest_pause = std::chrono::milliseconds(30'000);
constexpr auto tell_pause = std::chrono::seconds(1);
/// In the end a destination that doesn't answer is tried so often.
constexpr int last_tries = 3;

/// What is there now, by its names alone.
class Source {
 public:
  explicit Source(std::string path)
      : path_(std::move(path)), is_remote_(transport::is_remote(path_)), watch_(is_remote_ ? Names{} : places()) {}

  /// Waits a little; true if something may be new.
  bool wait_for_news() {
    if (is_remote_) {
      std::this_thread::sleep_for(follow_pause);
      if (Clock::now() < next_) return false;
      next_ = Clock::now() + remote_pause;
      return true;
    }
    (void)watch_.wait(follow_pause);
    Names now = names();
    if (now == known_) return false;
    known_ = std::move(now);
    return true;
  }

  /// Committed steps that are newer than one; unknown for a store elsewhere.
  [[nodiscard]] std::uint64_t newer_than(std::optional<std::uint64_t> step) const {
    const std::string last = step ? store::step_name(*step) : std::string();
    return static_cast<std::uint64_t>(std::count_if(
        known_.begin(), known_.end(), [&](const std::string& name) { return is_step(name) && name > last; }));
  }

 private:
  using Names = std::vector<std::string>;

  static bool is_step(const std::string& name) { return store::parse_step_name(name).has_value(); }
  [[nodiscard]] Names places() const { return {path_, path_ + "/.retired", path_ + "/.pending"}; }
  [[nodiscard]] Names names() const {
    Names all = os::list_directory(path_).value_or(Names{});
    std::erase_if(all, [](const std::string& name) { return !is_step(name); });
    for (std::string& name : os::list_directory(path_ + "/.retired").value_or(Names{})) all.push_back("r" + name);
    return all;
  }

  std::string path_;
  bool is_remote_;
  os::DirectoryWatch watch_;
  Names known_;
  Clock::time_point next_ = Clock::now();
};

/// What the looking thread tells those that send.
struct News {
  std::mutex mutex;
  std::condition_variable changed;
  std::uint64_t generation = 1;
  bool ending = false;    ///< once more, and then no more
  bool stopping = false;  ///< no more

  void tell(bool is_new, bool end, bool stop) {
    const std::lock_guard lock(mutex);
    if (is_new) ++generation;
    ending = ending || end;
    stopping = stopping || stop;
    changed.notify_all();
  }
};

/// Whatever happens, no thread outlives what it uses.
class Threads {
 public:
  explicit Threads(News& news) : news_(news) {}
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads() { join(true); }

  template <class Work>
  void start(Work work) {
    threads_.emplace_back(work);
  }
  void join(bool at_once) {
    if (at_once) news_.tell(false, false, true);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  News& news_;
  std::vector<std::thread> threads_;
};

class Follower {
 public:
  Follower(const FollowOptions& options, const std::string& destination, News& news, ops::SharedSyncObserver& shared)
      : options_(options.sync), news_(news), shared_(shared) {
    options_.destinations = {destination};
    options_.min_copies.reset();
    state_.name = destination;
  }

  void run() {
    std::uint64_t seen = 0;
    auto pause = first_pause;
    int tries_left = last_tries;
    while (!shared_.stop_requested()) {
      {
        std::unique_lock lock(news_.mutex);
        if (news_.stopping) return;
        const auto is_due = [&] { return news_.generation != seen || news_.ending; };
        if (state_.alike || state_.syncs == 0)
          news_.changed.wait_for(lock, follow_pause, is_due);
        else
          news_.changed.wait_for(lock, pause, [&] { return news_.stopping || news_.ending; });
        const bool nothing_to_do = news_.generation == seen && state_.alike;
        if (nothing_to_do && news_.ending) return;
        if (nothing_to_do) continue;
        seen = news_.generation;
      }
      bring_alike();
      if (state_.alike) {
        pause = first_pause;
        continue;
      }
      pause = std::min<std::chrono::milliseconds>(longest_pause, pause * 2);
      const std::lock_guard lock(news_.mutex);
      if (news_.ending && --tries_left == 0) return;
    }
  }

  /// While a sync runs, or waits to be tried again, time goes on.
  [[nodiscard]] ReplicaState state(const Source& source) {
    const std::lock_guard lock(mutex_);
    ReplicaState now = state_;
    now.lag_checkpoints = source.newer_than(now.newest_step);
    const bool lags = !now.alike || now.lag_checkpoints > 0;
    now.lag_seconds = lags ? std::chrono::duration<double>(Clock::now() - alike_since_).count() : 0;
    return now;
  }

 private:
  void bring_alike() {
    SyncDestination result;
    const auto start = Clock::now();
    try {
      result = sync(options_, shared_).destinations.front();
    } catch (const std::exception& error) {
      result.failure = error.what();
    }
    const std::lock_guard lock(mutex_);
    ++state_.syncs;
    state_.alike = result.alike;
    state_.failure = result.failure;
    state_.moved_bytes += result.moved_bytes;
    if (result.newest_step) state_.newest_step = result.newest_step;
    if (result.alike) alike_since_ = start;
    if (!result.alike && !shared_.stop_requested()) {
      ++state_.failures;
      shared_.warning("'" + state_.name + "': " + result.failure);
    }
  }

  SyncOptions options_;
  News& news_;
  ops::SharedSyncObserver& shared_;
  std::mutex mutex_;
  ReplicaState state_;
  Clock::time_point alike_since_ = Clock::now();
};

}  // namespace

FollowObserver::~FollowObserver() = default;
void FollowObserver::replica(const ReplicaState&) {}
bool FollowObserver::drain_requested() const { return false; }

std::vector<ReplicaState> follow(const FollowOptions& options, FollowObserver& observer) {
  if (options.sync.sources.size() != 1 || options.sync.destinations.empty() || options.sync.dry_run)
    throw Error(Errc::invalid_argument, "one store is followed, by at least one other");
  std::optional<os::ProcessWatch> process;
  if (options.until_pid) process.emplace(*options.until_pid);
  ops::SharedSyncObserver shared(observer);
  News news;
  Source source(options.sync.sources.front());
  std::vector<std::unique_ptr<Follower>> followers;
  for (const std::string& destination : options.sync.destinations)
    followers.push_back(std::make_unique<Follower>(options, destination, news, shared));
  Threads threads(news);
  for (const auto& follower : followers) threads.start([&follower] { follower->run(); });

  auto next_tell = Clock::now();
  bool ending = false;
  while (!ending && !observer.stop_requested()) {
    const bool is_new = source.wait_for_news();
    ending = observer.drain_requested() || (process && process->has_ended());
    if (is_new || ending) news.tell(true, ending, false);
    if (Clock::now() < next_tell) continue;
    next_tell = Clock::now() + tell_pause;
    for (const auto& follower : followers) {
      const ReplicaState state = follower->state(source);
      shared.locked([&] { observer.replica(state); });
    }
  }
  threads.join(!ending);
  std::vector<ReplicaState> states;
  for (const auto& follower : followers) states.push_back(follower->state(source));
  for (const ReplicaState& state : states) observer.replica(state);
  return states;
}

}  // namespace ckpt

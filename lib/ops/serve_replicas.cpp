// SPDX-License-Identifier: Apache-2.0
#include "ops/serve_replicas.hpp"

#include <ckpt/error.hpp>

namespace ckpt::ops {
namespace {

class FeedObserver final : public FollowObserver {
 public:
  FeedObserver(ServeObserver& observer, const ServeOptions& options, const std::atomic<bool>& stop)
      : observer_(observer), options_(options), stop_(stop) {}
  void warning(std::string_view message) override { observer_.warning(message); }
  void note(std::string_view message) override { observer_.note(message); }
  void replica(const ReplicaState& state) override { observer_.replica(state); }
  [[nodiscard]] bool drain_requested() const override { return stop_ && options_.until_idle; }
  [[nodiscard]] bool stop_requested() const override {
    return observer_.stop_requested() || (stop_ && !options_.until_idle);
  }

 private:
  ServeObserver& observer_;
  const ServeOptions& options_;
  const std::atomic<bool>& stop_;
};

}  // namespace

ReplicaFeed::ReplicaFeed(const ServeOptions& options, ServeObserver& observer)
    : options_(options), observer_(observer) {
  if (options.replicas.empty()) return;
  thread_ = std::thread([this] {
    FeedObserver feed(observer_, options_, stop_);
    FollowOptions follow_options;
    follow_options.sync.sources = {options_.store};
    follow_options.sync.destinations = options_.replicas;
    follow_options.sync.peer = options_.peer;
    try {
      (void)follow(follow_options, feed);
    } catch (const std::exception& error) {
      observer_.warning(std::string("the replicas aren't followed any more: ") + error.what());
    }
  });
}

ReplicaFeed::~ReplicaFeed() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
// A server's replicas: brought alike beside its own work.
#pragma once

#include <ckpt/serve.hpp>

#include <atomic>
#include <thread>

namespace ckpt::ops {

class ReplicaFeed {
 public:
  /// Nothing happens without replicas. The observer must be thread-safe.
  ReplicaFeed(const ServeOptions& options, ServeObserver& observer);
  ReplicaFeed(const ReplicaFeed&) = delete;
  ReplicaFeed& operator=(const ReplicaFeed&) = delete;
  /// Ends what is being sent: the next one goes on there. A server that ends when idle brings all alike first.
  ~ReplicaFeed();

 private:
  const ServeOptions& options_;
  ServeObserver& observer_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ckpt::ops

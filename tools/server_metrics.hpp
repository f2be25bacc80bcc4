// SPDX-License-Identifier: Apache-2.0
// What a server has done since it started and what is waiting, for Prometheus.
#pragma once

#include <ckpt/serve.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/metrics_file.hpp"

namespace ckpt::cli {

class ServerMetrics {
 public:
  /// `path` is written at most once a second; empty: never.
  ServerMetrics(std::string path, std::string store);

  void add(const ServedSave& save);
  void add_chore_failure(const std::string& chore) { ++chore_failures_[chore]; }
  void set_replica(const ReplicaState& state) { replicas_[state.name] = state; }
  void set_doors(std::vector<DoorState> doors) { doors_ = std::move(doors); }

  /// Writes if it's time to, or `now`. Throws as MetricsFile::write().
  void write(bool now);

 private:
  using Clock = std::chrono::steady_clock;

  struct Rank {
    std::map<std::string, std::uint64_t> saves;  ///< by state
    std::uint64_t raw_bytes = 0;
    std::uint64_t stored_bytes = 0;
    std::uint64_t last_step = 0;
    std::int64_t last_time = 0;
  };

  [[nodiscard]] std::string labels(std::string_view more = {}) const;
  void put_ranks(MetricsFile& file) const;
  void put_times(MetricsFile& file) const;
  void put_doors(MetricsFile& file) const;
  void put_replicas(MetricsFile& file) const;

  std::string path_;
  std::string store_;
  std::map<std::uint32_t, Rank> ranks_;
  std::map<std::string, std::uint64_t> chore_failures_;
  std::vector<DoorState> doors_;
  std::map<std::string, ReplicaState> replicas_;
  std::uint64_t retries_ = 0;
  Histogram stall_, write_, commit_, total_, throughput_;
  Clock::time_point next_ = Clock::now();
};

}  // namespace ckpt::cli

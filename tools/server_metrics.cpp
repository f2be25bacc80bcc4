// SPDX-License-Identifier: Apache-2.0
#include "server_metrics.hpp"

#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/error.hpp>
#include <ckpt/list.hpp>

#include <algorithm>
#include <ctime>
#include <optional>

namespace ckpt::cli {
namespace {

const std::vector<double> second_bounds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000};
const std::vector<double> rate_bounds = {1e6, 1e7, 3e7, 1e8, 3e8, 1e9, 3e9, 1e10};

/// Whoever stored it.
std::optional<CheckpointInfo> newest_durable(const std::string& store) {
  try {
    return find_checkpoint({.store = store, .selector = {.kind = Selector::Kind::latest}});
  } catch (const Error&) {
    return std::nullopt;  // none yet, or none that can be believed: then its age is what alarms
  }
}

double number(std::uint64_t value) { return static_cast<double>(value); }

}  // namespace

ServerMetrics::ServerMetrics(std::string path, std::string store)
    : path_(std::move(path)),
      store_(std::move(store)),
      stall_(second_bounds),
      write_(second_bounds),
      commit_(second_bounds),
      total_(second_bounds),
      throughput_(rate_bounds) {}

void ServerMetrics::add(const ServedSave& save) {
  Rank& rank = ranks_[save.rank];
  if (save.will_retry) {
    ++retries_;
    return;
  }
  ++rank.saves[std::string(to_string(save.state))];
  if (save.state != SaveState::written && save.state != SaveState::durable) return;
  rank.raw_bytes += save.raw_bytes;
  rank.stored_bytes += save.stored_bytes;
  rank.last_step = save.step;
  rank.last_time = std::time(nullptr);
  if (save.stall_seconds) stall_.add(*save.stall_seconds);
  write_.add(save.write_seconds);
  commit_.add(save.commit_seconds);
  total_.add(save.total_seconds);
  if (save.write_seconds > 0) throughput_.add(number(save.raw_bytes) / save.write_seconds);
}

std::string ServerMetrics::labels(std::string_view more) const {
  const std::string store = MetricsFile::label("store", store_);
  return more.empty() ? store : fmt::format("{},{}", store, more);
}

void ServerMetrics::put_ranks(MetricsFile& file) const {
  for (const auto& [number_of, rank] : ranks_) {
    const std::string who = MetricsFile::label("rank", std::to_string(number_of));
    for (const auto& [state, count] : rank.saves) {
      file.counter("ckpt_serve_saves_total", "Saves, by how they ended.", number(count),
                   labels(who + "," + MetricsFile::label("state", state)));
    }
    file.counter("ckpt_serve_raw_bytes_total", "Bytes handed over.", number(rank.raw_bytes), labels(who));
    file.counter("ckpt_serve_stored_bytes_total", "Bytes stored for these.", number(rank.stored_bytes), labels(who));
    if (rank.stored_bytes > 0) {
      file.gauge("ckpt_serve_ratio", "Bytes handed over for each byte stored.",
                 number(rank.raw_bytes) / number(rank.stored_bytes), labels(who));
    }
    if (rank.last_time == 0) continue;
    file.gauge("ckpt_serve_last_step", "The step last stored.", number(rank.last_step), labels(who));
    file.gauge("ckpt_serve_last_timestamp_seconds", "When that was.", static_cast<double>(rank.last_time), labels(who));
  }
  file.counter("ckpt_serve_retries_total", "Saves that have to be tried again.", number(retries_), labels());
}

void ServerMetrics::put_times(MetricsFile& file) const {
  file.histogram("ckpt_serve_stall_seconds", "How long producers waited until they could go on.", stall_, labels());
  file.histogram("ckpt_serve_write_seconds", "Reading, encoding and writing a shard.", write_, labels());
  file.histogram("ckpt_serve_commit_seconds", "Publishing a shard, and committing.", commit_, labels());
  file.histogram("ckpt_serve_total_seconds", "From hand-over to stable storage.", total_, labels());
  file.histogram("ckpt_serve_bytes_per_second", "Bytes handed over for each second of writing.", throughput_, labels());
}

void ServerMetrics::put_doors(MetricsFile& file) const {
  for (const DoorState& door : doors_) {
    const std::string which = labels(MetricsFile::label("door", door.door));
    file.gauge("ckpt_serve_reachable", "0 if the door can't be reached.", door.trouble.empty() ? 1 : 0, which);
    file.gauge("ckpt_serve_queue_saves", "Saves that are waiting.", number(door.saves), which);
    file.gauge("ckpt_serve_queue_bytes", "Their bytes.", number(door.bytes), which);
    file.gauge("ckpt_serve_queue_oldest_seconds", "How long the oldest has been waiting.", door.oldest_seconds, which);
    file.gauge("ckpt_serve_dead_letters", "Saves that failed twice and are kept.", number(door.dead_letters), which);
  }
}

void ServerMetrics::put_replicas(MetricsFile& file) const {
  for (const auto& [name, state] : replicas_) {
    const std::string which = labels(MetricsFile::label("replica", name));
    file.gauge("ckpt_serve_replica_alike", "1 if it held all when it was last compared.", state.alike ? 1 : 0, which);
    if (state.newest_step)
      file.gauge("ckpt_serve_replica_step", "The newest checkpoint there.", number(*state.newest_step), which);
    file.gauge("ckpt_serve_replica_lag_checkpoints", "Checkpoints that are newer here.", number(state.lag_checkpoints),
               which);
    file.gauge("ckpt_serve_replica_lag_seconds", "Since it was last known to hold all.", state.lag_seconds, which);
    file.counter("ckpt_serve_replica_failures_total", "Syncs that failed.", number(state.failures), which);
    file.counter("ckpt_serve_replica_moved_bytes_total", "Bytes of containers sent.", number(state.moved_bytes), which);
  }
}

void ServerMetrics::write(bool now) {
  if (path_.empty() || (!now && Clock::now() < next_)) return;
  next_ = Clock::now() + std::chrono::seconds(1);
  MetricsFile file;
  file.gauge("ckpt_serve_up_timestamp_seconds", "When this was written.", static_cast<double>(std::time(nullptr)),
             labels());
  const auto newest = newest_durable(store_);
  if (newest) file.gauge("ckpt_serve_durable_step", "The newest durable checkpoint.", number(newest->step), labels());
  if (newest && newest->created) {
    file.gauge("ckpt_serve_durable_timestamp_seconds", "When it was saved.", static_cast<double>(*newest->created),
               labels());
    file.gauge("ckpt_serve_durable_age_seconds", "How long ago that is.",
               std::max(0.0, static_cast<double>(std::time(nullptr) - *newest->created)), labels());
  }
  put_doors(file);
  put_replicas(file);
  put_ranks(file);
  put_times(file);
  for (const auto& [chore, count] : chore_failures_) {
    file.counter("ckpt_serve_chore_failures_total", "Chores that failed, or found damage.", number(count),
                 labels(MetricsFile::label("chore", chore)));
  }
  file.write(path_);
}

}  // namespace ckpt::cli

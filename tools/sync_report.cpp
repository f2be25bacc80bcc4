// SPDX-License-Identifier: Apache-2.0
#include "sync_report.hpp"

#include <fmt/format.h>

#include <csignal>
#include <utility>

namespace ckpt::cli {
namespace {

std::string_view name_of(SyncItem::Action action) {
  switch (action) {
    case SyncItem::Action::sent: return "sent";
    case SyncItem::Action::retired: return "retired";
    case SyncItem::Action::removed: return "removed";
    case SyncItem::Action::kept: return "kept";
    case SyncItem::Action::failed: break;
  }
  return "failed";
}

FieldValue step_or_none(const std::optional<std::uint64_t>& step) {
  if (!step) return std::monostate{};
  return *step;
}

}  // namespace

bool SyncReporter::stop_requested() const {
  const int signal = pending_signal();
  return signal != 0 && !(request_.watch && signal == SIGTERM);
}

bool SyncReporter::drain_requested() const { return pending_signal() == SIGTERM; }

void SyncReporter::replica(const ReplicaState& state) {
  if (report_ == nullptr || report_->is_human()) return;
  const std::string shown = fmt::format("{} {} {}", state.alike, state.newest_step.value_or(0), state.failure);
  if (std::exchange(told_[state.name], shown) == shown) return;
  report_->record({"replica",
                   {{"destination", state.name},
                    {"alike", state.alike},
                    {"newest_step", step_or_none(state.newest_step)},
                    {"lag_checkpoints", state.lag_checkpoints},
                    {"lag_seconds", state.lag_seconds},
                    {"failure", text_or_none(state.failure)},
                    {"syncs", state.syncs},
                    {"failures", state.failures},
                    {"moved_bytes", state.moved_bytes}}});
  program_.output().flush();
}

void SyncReporter::item(const SyncItem& item) {
  if (item.action == SyncItem::Action::kept) program_.messages().warning(item.reason);
  if (report_ == nullptr) return;
  const bool is_trouble = item.action == SyncItem::Action::failed || item.action == SyncItem::Action::kept;
  if (report_->is_human()) {
    if (is_trouble) return;  // said as messages
    const bool asked = request_.itemize || request_.sync.dry_run || program_.messages().settings().verbose;
    if (asked) report_->line(fmt::format("{} {} {} {}", name_of(item.action), item.step, item.id, item.destination));
    return;
  }
  report_->record({"item",
                   {{"destination", item.destination},
                    {"action", std::string(name_of(item.action))},
                    {"step", item.step},
                    {"id", text_or_none(item.id)},
                    {"stored_bytes", item.stored_bytes},
                    {"moved_bytes", item.moved_bytes},
                    {"reason", text_or_none(item.reason)}}});
  program_.output().flush();
}

int SyncReporter::finish(const SyncReport& synced) {
  bool all_temporary = true;
  for (const SyncDestination& destination : synced.destinations) {
    if (!destination.alike) {
      all_temporary = all_temporary && destination.temporary;
      program_.messages().error(fmt::format("'{}': {}", destination.name, destination.failure));
    }
    if (request_.stats && report_->is_human()) {
      report_->line(fmt::format("{}: {} sent, {} removed, {} moved{}", destination.name, destination.sent,
                                destination.removed, human_bytes(destination.moved_bytes),
                                destination.alike ? "" : ", not alike"));
    }
    report_->record({"destination",
                     {{"destination", destination.name},
                      {"alike", destination.alike},
                      {"temporary", destination.temporary},
                      {"failure", text_or_none(destination.failure)},
                      {"sent", destination.sent},
                      {"removed", destination.removed},
                      {"moved_bytes", destination.moved_bytes},
                      {"newest_step", step_or_none(destination.newest_step)}}});
  }
  const std::uint64_t wanted = request_.sync.min_copies.value_or(synced.destinations.size());
  int status = exit_done;
  if (synced.alike() < wanted) status = all_temporary ? exit_temporary : exit_trouble;
  report_->summary({{"alike", synced.alike()}, {"seconds", synced.seconds}, {"exit_status", std::int64_t{status}}});
  return status;
}

int SyncReporter::finish(const std::vector<ReplicaState>& states) {
  int status = exit_done;
  std::uint64_t alike = 0;
  for (const ReplicaState& state : states) {
    if (state.alike) {
      ++alike;
      continue;
    }
    if (!state.failure.empty()) program_.messages().error(fmt::format("'{}': {}", state.name, state.failure));
    status = exit_temporary;
  }
  report_->summary({{"alike", alike}, {"exit_status", std::int64_t{status}}});
  return status;
}

}  // namespace ckpt::cli

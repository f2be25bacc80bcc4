// SPDX-License-Identifier: Apache-2.0
#include "run_report.hpp"

#include <fmt/format.h>

#include <utility>

namespace ckpt::cli {
namespace {

FieldValue number_or_none(const std::optional<std::uint32_t>& value) {
  if (!value) return std::monostate{};
  return std::uint64_t{*value};
}

void add_failure(std::vector<Field>& fields, const std::optional<RunFailure>& failure) {
  if (!failure) return;
  fields.push_back({"cause", std::string(to_string(failure->cause))});
  fields.push_back({"pid", failure->pid});
  if (failure->exit_status != 0) fields.push_back({"exit_status", std::int64_t{failure->exit_status}});
  if (failure->signal != 0) fields.push_back({"signal", std::int64_t{failure->signal}});
}

std::vector<Field> fields_of(const RunEvent& event) {
  std::vector<Field> fields;
  if (event.attempt) fields.push_back({"attempt", *event.attempt});
  if (event.step) fields.push_back({"step", *event.step});
  if (event.rank) fields.push_back({"rank", number_or_none(event.rank)});
  if (event.ranks) fields.push_back({"ranks", number_or_none(event.ranks)});
  if (event.seconds) fields.push_back({"seconds", *event.seconds});
  add_failure(fields, event.failure);
  return fields;
}

/// What a person wants to know who looks later why it took so long. The rest is said with --verbose.
bool is_news(const RunEvent& event) {
  switch (event.kind) {
    case RunEventKind::started:
    // Said by `failed`, too.
    case RunEventKind::heartbeat_lost:
    case RunEventKind::asked:
    case RunEventKind::durable:
    case RunEventKind::finished: return false;
    // At the first start, that it begins; after a failure, from where it goes on.
    case RunEventKind::restored: return event.seconds.has_value();
    // Said by `restored`, too.
    case RunEventKind::restarted: return false;
    default: return true;
  }
}

}  // namespace

void RunReporter::event(const RunEvent& event) {
  messages_.event(to_string(event.kind), event.text, fields_of(event), is_news(event));
  if (!event.failure || event.kind != RunEventKind::failed) return;
  for (const std::string& line : event.failure->last_lines)
    messages_.event("output", fmt::format("rank {}: {}", event.failure->rank, line), {}, true);
}

void RunReporter::state(const RunState& state) {
  // A full disk is no reason to stop a training: said once.
  try {
    metrics_.write(state);
    metrics_failure_.clear();
  } catch (const Error& error) {
    if (std::exchange(metrics_failure_, error.what()) != error.what()) messages_.warning(error.what());
  }
}

void RunReporter::finish(const RunReport& report) {
  state(report.state);
  RunEvent event{
      .kind = RunEventKind::finished,
      .text = fmt::format("{}{}{}", to_string(report.outcome), report.detail.empty() ? "" : ": ", report.detail),
      .attempt = report.attempt,
      .step = report.durable_step,
      .seconds = report.seconds};
  messages_.event(to_string(event.kind), event.text, fields_of(event), false);
  if (report.outcome == RunOutcome::failed || report.outcome == RunOutcome::no_progress)
    messages_.error(fmt::format("{}: {}",
                                report.outcome == RunOutcome::failed ? "the job failed" : "the job makes no progress",
                                report.detail));
  if (report.outcome == RunOutcome::preempted && !report.is_safe)
    messages_.warning(fmt::format("the last step that the ranks told of is not durable; the newest that is: {}",
                                  report.durable_step ? std::to_string(*report.durable_step) : "none"));
}

void put_run(Report& report, const RunReport& ran) {
  Record record{"run",
                {{"outcome", std::string(to_string(ran.outcome))},
                 {"detail", text_or_none(ran.detail)},
                 {"attempt", ran.attempt},
                 {"restarts", std::uint64_t{ran.restarts}},
                 {"durable_step", field_of(ran.durable_step)},
                 {"is_safe", ran.is_safe},
                 {"seconds", ran.seconds},
                 {"lost_seconds", ran.state.lost_seconds},
                 {"steps_redone", ran.state.steps_redone},
                 {"rank", std::monostate{}},
                 {"cause", std::monostate{}},
                 {"exit_status", std::monostate{}},
                 {"signal", std::monostate{}}}};
  if (ran.failure) {
    const std::size_t first = record.fields.size() - 4;
    record.fields[first].value = std::uint64_t{ran.failure->rank};
    record.fields[first + 1].value = std::string(to_string(ran.failure->cause));
    if (ran.failure->exit_status != 0) record.fields[first + 2].value = std::int64_t{ran.failure->exit_status};
    if (ran.failure->signal != 0) record.fields[first + 3].value = std::int64_t{ran.failure->signal};
  }
  report.record(record);
  report.summary({{"outcome", std::string(to_string(ran.outcome))}, {"restarts", std::uint64_t{ran.restarts}}});
}

}  // namespace ckpt::cli

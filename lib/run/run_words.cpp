// SPDX-License-Identifier: Apache-2.0
// The words that stand in logs, records and metrics.
#include <ckpt/run.hpp>

namespace ckpt {

std::string_view to_string(RunCause cause) {
  switch (cause) {
    case RunCause::exit: return "exit";
    case RunCause::signal: return "signal";
    case RunCause::out_of_memory: return "out_of_memory";
    case RunCause::silence: return "silence";
    case RunCause::slow_start: return "slow_start";
    case RunCause::node: return "node";
    case RunCause::resize: return "resize";
  }
  return "";
}

std::string_view to_string(RunOutcome outcome) {
  switch (outcome) {
    case RunOutcome::finished: return "finished";
    case RunOutcome::failed: return "failed";
    case RunOutcome::no_progress: return "no_progress";
    case RunOutcome::preempted: return "preempted";
    case RunOutcome::killed: return "killed";
  }
  return "";
}

std::string_view to_string(RunEventKind kind) {
  switch (kind) {
    case RunEventKind::waiting: return "waiting";
    case RunEventKind::started: return "started";
    case RunEventKind::heartbeat_lost: return "heartbeat_lost";
    case RunEventKind::failed: return "failed";
    case RunEventKind::passed_over: return "passed_over";
    case RunEventKind::poisoned: return "poisoned";
    case RunEventKind::restored: return "restored";
    case RunEventKind::left_out: return "left_out";
    case RunEventKind::resized: return "resized";
    case RunEventKind::restarted: return "restarted";
    case RunEventKind::asked: return "asked";
    case RunEventKind::durable: return "durable";
    case RunEventKind::finished: return "finished";
  }
  return "";
}

}  // namespace ckpt

// SPDX-License-Identifier: Apache-2.0
// Hands a state over and goes on: someone else makes it durable.
//
// Through the spool (the file door) another process drains it into the store: a worker that the caller starts, see
// serve.hpp, or ckpt-serve. Through a queue any ckpt-serve that reads it does. Once `staged` is reported the input may
// be overwritten or deleted, and what is stored is what it was then.
#pragma once

#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/save.hpp>
#include <ckpt/state.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt {

/// What to do while as much is staged as may be.
enum class WhenFull {
  wait,  ///< until there's room
  fail,  ///< Errc::busy
  skip,  ///< SaveState::skipped, for all ranks of the set
};

/// How much may be staged at once, this save included. One alone is always let in.
struct StagedLimit {
  std::optional<std::uint64_t> bytes;
  std::optional<std::uint64_t> saves;
};

struct StageOptions {
  /// As for save(). `read_back`, `encode`, `base`, `check`, `replace` and the rest are done when it's drained. With
  /// `to` it names no store.
  SaveOptions save;

  /// The inputs are moved where the file system can, else copied and removed. They're gone once this comes back.
  bool consume = false;
  /// The spool's directory. Empty: STORE/.spool/HOST. Elsewhere, on a node's own disk, it dies with the node.
  std::string spool;
  StagedLimit limit;
  WhenFull when_full = WhenFull::wait;
  /// How long to wait for room or an answer; then Errc::busy. 0: as long as it takes, for room in a spool; 60 for a
  /// queue.
  double timeout_seconds = 0;

  /// Queues to try in turn, as redis://HOST:PORT[/DB]?key=NAME. Empty: the spool.
  std::vector<std::string> to;
  std::string queue_password;  ///< for all of them; empty: none
  bool until_durable = false;  ///< with `to`: comes back once the shard's fate in the store is known
};

struct StageReport {
  std::uint64_t step = 0;
  std::optional<std::uint64_t> attempt;  ///< nothing: the server says
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  /// staged or skipped; with `until_durable` written, durable or failed, or staged if nothing was heard in time
  SaveState state = SaveState::staged;
  std::string reason;  ///< why it was skipped or failed, or nothing was heard
  std::string id;      ///< of the checkpoint, if it's known to be committed
  std::string door;    ///< the spool's path, or the queue's address without a password
  std::string how;     ///< "rename", "reflink", "copy", "queue"
  std::uint64_t files = 0;
  std::uint64_t raw_bytes = 0;
  double seconds = 0;  ///< until it was staged, or with `until_durable` stored: the caller's stall
};

/// Errors: those of save() that can be known now; busy (full, not reachable, in time).
///
/// Safe to call from several threads and processes at once.
[[nodiscard]] CKPT_API StageReport stage(const StageOptions& options, Monitor& monitor);

}  // namespace ckpt

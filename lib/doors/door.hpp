// SPDX-License-Identifier: Apache-2.0
// The two ends of an asynchronous save: who hands a state over, and who takes it and makes it durable. A door is one
// way to get from the first to the second; the spool on disk is one, a Redis stream another. A new one implements
// these and is named in doors.cpp.
#pragma once

#include "doors/ticket.hpp"
#include "source/source_tree.hpp"

#include <ckpt/monitor.hpp>
#include <ckpt/stage.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::doors {

/// A state to hand over.
struct Parcel {
  const StageOptions& options;
  Ticket ticket;
  /// What will be saved, arranged; origins are where the bytes are now.
  std::vector<source::TreeEntry> entries;
};

struct Receipt {
  /// staged, or skipped; with until_durable what became of it: written, durable, failed, or staged if that wasn't heard
  SaveState state = SaveState::staged;
  std::string how;     ///< "rename", "reflink", "copy", "queue"
  std::string reason;  ///< why it was skipped or failed, or isn't known
  std::string id;      ///< of the checkpoint, if it's known to be committed
};

/// The producer's end.
class Outlet {
 public:
  virtual ~Outlet() = default;
  /// Comes back once the state is accepted: then it doesn't depend on this process or its input any more. Throws busy
  /// (an input is open for writing or changed; full, or can't be reached), no_space, io, interrupted: then nothing was
  /// accepted, and the input is where it was.
  [[nodiscard]] virtual Receipt hand_over(const Parcel& parcel, Monitor& monitor) = 0;
};

/// One accepted save in the hands of a server. Let go of without a word it's as if it had been released.
class Claim {
 public:
  virtual ~Claim() = default;
  [[nodiscard]] virtual const Ticket& ticket() const = 0;
  /// A directory whose contents are the state, on local disk; it lives as long as the claim. Throws damaged (what came
  /// isn't what was handed over), no_space, io, busy, interrupted.
  [[nodiscard]] virtual std::string fetch(Monitor& monitor) = 0;
  /// How long the producer had to wait until it was staged, in seconds, if it's known.
  [[nodiscard]] virtual std::optional<double> stall_seconds() const = 0;

  /// The shard is on stable storage in the store: the copy is given up.
  virtual void done(const SaveReport& report) = 0;
  /// It can't be saved. The first time it's tried again, the second time it goes to the dead letters: then true.
  [[nodiscard]] virtual bool fail(const std::string& reason) = 0;
  /// Back to where it came from, for a reason that passes.
  virtual void release(const std::string& reason) = 0;
};

struct Backlog {
  std::uint64_t saves = 0;
  std::uint64_t bytes = 0;
  double oldest_seconds = 0;
  std::uint64_t dead_letters = 0;
};

/// The server's end. Not thread-safe.
class Inlet {
 public:
  virtual ~Inlet() = default;
  /// The next save that no one else has, oldest step first; nothing if there's none in this moment. Doesn't wait.
  /// Throws busy if the other side can't be reached.
  [[nodiscard]] virtual std::unique_ptr<Claim> claim(Monitor& monitor) = 0;
  [[nodiscard]] virtual Backlog backlog() = 0;
  /// For messages.
  [[nodiscard]] virtual std::string name() const = 0;
};

}  // namespace ckpt::doors

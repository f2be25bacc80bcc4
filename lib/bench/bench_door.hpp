// SPDX-License-Identifier: Apache-2.0
// The three ways of saving, as the loop sees them: one call that it waits for, and a look at how far a save has come.
#pragma once

#include "bench/bench_loop.hpp"
#include "bench/bench_state.hpp"

#include <ckpt/bench.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace ckpt::measure {

struct DoorSettings {
  const BenchOptions& options;  ///< without zeros that stand for something
  const State& state;
  std::string store;  ///< of this way alone
  std::string files;  ///< a directory for the trainer's own files, on the file system of the spool
  std::string spool;  ///< of the detached way; empty: in the store
  BenchWorkers& workers;
  Monitor& monitor;
};

/// begin() and finish() are called by the loop's thread, look() by another one; the caller sees to it that none runs
/// beside begin().
class SaveDoor {
 public:
  virtual ~SaveDoor() = default;
  /// The stall. What it knows already of the save's times it sets; those that are 0 look() finds out.
  virtual void begin(BenchSave& save, Clock::time_point start) = 0;
  virtual void look(BenchSave& save, Clock::time_point start) = 0;
  /// After all saves are durable: the numbers that come last.
  virtual void finish(BenchWayReport& report) = 0;
};

[[nodiscard]] std::unique_ptr<SaveDoor> open_door(BenchWay way, const DoorSettings& settings);

}  // namespace ckpt::measure

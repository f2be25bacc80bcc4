// SPDX-License-Identifier: Apache-2.0
// What ckpt-sync says: records of what it did, and who is alike in the end.
#pragma once

#include <ckpt/sync.hpp>

#include <map>
#include <string>
#include <vector>

#include "cli/program.hpp"
#include "sync_options.hpp"

namespace ckpt::cli {

class SyncReporter final : public FollowObserver {
 public:
  /// `report` may be null: standard output is taken.
  SyncReporter(Program& program, Report* report, const SyncRequest& request)
      : program_(program), report_(report), request_(request) {}

  void progress(const Progress& progress) override { program_.monitor().progress(progress); }
  void warning(std::string_view message) override { program_.messages().warning(message); }
  void note(std::string_view message) override { program_.messages().note(message); }
  /// A watch ends with TERM once all is sent, and with the other signals at once.
  [[nodiscard]] bool stop_requested() const override;
  [[nodiscard]] bool drain_requested() const override;
  void item(const SyncItem& item) override;
  void replica(const ReplicaState& state) override;

  /// Reports the destinations, and gives the exit status.
  [[nodiscard]] int finish(const SyncReport& synced);
  [[nodiscard]] int finish(const std::vector<ReplicaState>& states);

 private:
  Program& program_;
  Report* report_;
  const SyncRequest& request_;
  std::map<std::string, std::string> told_;  ///< the last state of each replica that a record told
};

}  // namespace ckpt::cli

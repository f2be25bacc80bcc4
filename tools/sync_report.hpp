// SPDX-License-Identifier: Apache-2.0
// What ckpt-sync says: records of what it did, and who is alike in the end.
#pragma once

#include <ckpt/sync.hpp>

#include "cli/program.hpp"
#include "sync_options.hpp"

namespace ckpt::cli {

class SyncReporter final : public SyncObserver {
 public:
  /// `report` may be null: standard output is taken.
  SyncReporter(Program& program, Report* report, const SyncRequest& request)
      : program_(program), report_(report), request_(request) {}

  void progress(const Progress& progress) override { program_.monitor().progress(progress); }
  void warning(std::string_view message) override { program_.messages().warning(message); }
  void note(std::string_view message) override { program_.messages().note(message); }
  [[nodiscard]] bool stop_requested() const override { return program_.monitor().stop_requested(); }
  void item(const SyncItem& item) override;

  /// Reports the destinations, and gives the exit status.
  [[nodiscard]] int finish(const SyncReport& synced);

 private:
  Program& program_;
  Report* report_;
  const SyncRequest& request_;
};

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
// What ckpt-run says: of each event on standard error, of the whole on standard output, and in metrics.
#pragma once

#include <ckpt/run.hpp>

#include "cli/messages.hpp"
#include "cli/report.hpp"
#include "run_metrics.hpp"

namespace ckpt::cli {

class RunReporter final : public RunObserver {
 public:
  RunReporter(Messages& messages, RunMetrics metrics) : messages_(messages), metrics_(std::move(metrics)) {}

  void event(const RunEvent& event) override;
  void state(const RunState& state) override;
  void warning(std::string_view message) override { messages_.warning(message); }
  /// Says how it ended, unless it's finished.
  void finish(const RunReport& report);

 private:
  Messages& messages_;
  RunMetrics metrics_;
  std::string metrics_failure_;
};

void put_run(Report& report, const RunReport& ran);

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
// ckpt-run's numbers for Prometheus.
#pragma once

#include <ckpt/run.hpp>

#include <string>

namespace ckpt::cli {

class RunMetrics {
 public:
  /// An empty path: nothing is written.
  RunMetrics(std::string path, std::string store) : path_(std::move(path)), store_(std::move(store)) {}

  void write(const RunState& state) const;

 private:
  std::string path_;
  std::string store_;
};

}  // namespace ckpt::cli

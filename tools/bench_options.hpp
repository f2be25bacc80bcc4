// SPDX-License-Identifier: Apache-2.0
// The options of ckpt-bench.
#pragma once

#include <ckpt/bench.hpp>

#include <string>

#include "cli/program.hpp"

namespace ckpt::cli {

struct BenchRequest {
  BenchOptions bench;
  std::string plot;  ///< a file for the picture; empty: none
};

void declare_bench_options(CommandLine& line, BenchRequest& request);

}  // namespace ckpt::cli

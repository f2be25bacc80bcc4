// SPDX-License-Identifier: Apache-2.0
// What ckpt-bench says: records for programs, tables for people.
#pragma once

#include <ckpt/bench.hpp>

#include "cli/report.hpp"

namespace ckpt::cli {

void put_bench(Report& report, const BenchReport& measured);

/// The tables alone; bench_tables.cpp.
void print_bench_tables(Report& report, const BenchReport& measured);

}  // namespace ckpt::cli

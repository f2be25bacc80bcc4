// SPDX-License-Identifier: Apache-2.0
// What ckpt-diff found, as records for programs and tables for people.
#pragma once

#include <ckpt/diff.hpp>

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/program.hpp"

namespace ckpt::cli {

enum class DiffOrder { name, changed, max, mean, l2, relative, cosine, size };

struct DiffView {
  bool modules = false;               ///< sums instead of tensors
  std::optional<unsigned> depth;      ///< of prefixes
  std::optional<DiffOrder> order;     ///< unset: as they come
  std::optional<std::uint64_t> most;  ///< tensors or prefixes
};

/// Nothing for people if nothing differs.
void print_diff(Report& report, const DiffReport& diff, const DiffView& view, bool color);

/// The fields of the summary.
[[nodiscard]] std::vector<Field> diff_summary(const DiffReport& diff, int exit_status);

}  // namespace ckpt::cli

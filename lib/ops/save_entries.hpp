// SPDX-License-Identifier: Apache-2.0
// The save of what has been found: for save(), and for those who take over what others handed in.
#pragma once

#include "source/source_tree.hpp"

#include <ckpt/monitor.hpp>
#include <ckpt/save.hpp>

#include <vector>

namespace ckpt::ops {

/// As save(), which says the rest. `entries` are arranged; the options that name sources aren't looked at.
[[nodiscard]] SaveReport save_entries(const SaveOptions& options, std::vector<source::TreeEntry> entries,
                                      Monitor& monitor);

}  // namespace ckpt::ops

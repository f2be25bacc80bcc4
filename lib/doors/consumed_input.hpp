// SPDX-License-Identifier: Apache-2.0
// An input that was handed over and isn't wanted any more.
#pragma once

#include "source/source_tree.hpp"

#include <ckpt/monitor.hpp>

#include <vector>

namespace ckpt::doors {

/// What was copied is consumed by removing it. What can't be removed is a warning: it's accepted all the same.
void remove_inputs(const std::vector<source::TreeEntry>& entries, Monitor& monitor);

}  // namespace ckpt::doors

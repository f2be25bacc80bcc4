// SPDX-License-Identifier: Apache-2.0
// Which paths a catalog may hold: what is stored can be restored below any directory, and nowhere else.
#pragma once

#include "format/catalog.hpp"

#include <vector>

namespace ckpt::format {

/// Paths are safe, sorted and unique, nothing lies below an entry that isn't a directory, and hard links name a file
/// of the list. Throws Damaged.
void check_paths(const std::vector<FileEntry>& files);

}  // namespace ckpt::format

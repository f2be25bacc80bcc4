// SPDX-License-Identifier: Apache-2.0
// An input must be the same from the first look to the last byte: what changes under one's hands is refused.
#pragma once

#include "os/fd.hpp"
#include "source/source_tree.hpp"

namespace ckpt::source {

/// Both throw Errc::busy. `fd` is open on the entry's origin.
void require_unchanged(const TreeEntry& entry, const os::Fd& fd);
void require_not_open_for_writing(const TreeEntry& entry, const os::Fd& fd);

}  // namespace ckpt::source

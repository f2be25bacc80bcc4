// SPDX-License-Identifier: Apache-2.0
// Asks the kernel whether a file is open for writing somewhere.
#pragma once

#include "os/fd.hpp"

namespace ckpt::os {

/// True if another open file description can write to this file. `fd` is open for reading only. False also where the
/// kernel can't tell: another user's file, many network file systems.
[[nodiscard]] bool is_open_for_writing(const Fd& fd);

}  // namespace ckpt::os

// SPDX-License-Identifier: Apache-2.0
// What dead producers and servers left in a spool: what was handed over is finished, what wasn't is given back, and
// nothing that could be anyone's input is deleted.
#pragma once

#include "doors/spool.hpp"

#include <ckpt/monitor.hpp>

namespace ckpt::doors {

/// The caller holds the spool's lock. Entries that someone has in hand are left alone.
void recover(const Spool& spool, Monitor& monitor);

}  // namespace ckpt::doors

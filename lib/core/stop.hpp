// SPDX-License-Identifier: Apache-2.0
// The caller's wish to stop, asked at block boundaries.
#pragma once

#include <ckpt/error.hpp>
#include <ckpt/monitor.hpp>

namespace ckpt {

/// Throws Errc::interrupted if the caller wants no more.
inline void require_no_stop(const Monitor& monitor) {
  if (monitor.stop_requested()) throw Error(Errc::interrupted, "interrupted");
}

}  // namespace ckpt

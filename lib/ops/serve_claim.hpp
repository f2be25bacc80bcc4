// SPDX-License-Identifier: Apache-2.0
// One save that was taken from a door, on its way into the store.
#pragma once

#include "doors/door.hpp"

#include <ckpt/monitor.hpp>
#include <ckpt/serve.hpp>

#include <string>

namespace ckpt::ops {

/// Fetches, saves, and tells the claim what came of it. Throws interrupted, with the claim released; everything else
/// that goes wrong is in the outcome.
[[nodiscard]] ServedSave serve_claim(doors::Claim& claim, const std::string& door, const ServeOptions& options,
                                     Monitor& monitor);

}  // namespace ckpt::ops

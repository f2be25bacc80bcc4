// SPDX-License-Identifier: Apache-2.0
// From a name on the command line to one side of a sync.
#pragma once

#include "transport/replica.hpp"

#include <ckpt/monitor.hpp>
#include <ckpt/sync.hpp>

#include <chrono>
#include <memory>
#include <string>

namespace ckpt::ops {

/// A store in a directory, on what rclone reaches, or behind a remote shell. The monitor outlives it. Throws
/// invalid_argument, busy.
[[nodiscard]] std::unique_ptr<transport::Replica> open_replica(const std::string& name, const PeerOptions& peer,
                                                               Monitor& monitor);

[[nodiscard]] std::chrono::milliseconds patience_of(const PeerOptions& peer);

}  // namespace ckpt::ops

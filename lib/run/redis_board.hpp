// SPDX-License-Identifier: Apache-2.0
// Nodes that come and go meet in Redis. What it answers may take its time, and so a process of its own speaks with it
// (redis_link.hpp); this is the supervisor's side, which never waits.
//
// What a node tells and what was decided for the job are whole states. Redis gives one node at a time the lead, by a
// lease that this node lets go of, by its own monotonic clock, before Redis does.
#pragma once

#include "run/board.hpp"

#include <ckpt/run.hpp>

#include <memory>

namespace ckpt::run {

/// Of RunOptions::cluster. Throws invalid_argument for what is no address; unsupported in a build without Redis.
[[nodiscard]] std::unique_ptr<Board> open_redis_board(const RunOptions& options);

}  // namespace ckpt::run

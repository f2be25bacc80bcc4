// SPDX-License-Identifier: Apache-2.0
// Stands in for redis_board.cpp where hiredis wasn't found.
#include "doors/redis_address.hpp"
#include "run/redis_board.hpp"

#include <ckpt/error.hpp>

namespace ckpt::run {

std::unique_ptr<Board> open_redis_board(const RunOptions& options) {
  const std::string where = doors::parse_redis_address(options.cluster).text();
  throw Error(Errc::unsupported, "cannot use '" + where + "': this build has no Redis").with_hint("build with hiredis");
}

}  // namespace ckpt::run

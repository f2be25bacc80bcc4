// SPDX-License-Identifier: Apache-2.0
// Stands in for redis_doors.cpp where hiredis wasn't found.
#include "doors/redis_address.hpp"
#include "doors/redis_doors.hpp"

#include <ckpt/error.hpp>

namespace ckpt::doors {
namespace {

[[noreturn]] void refuse(const std::string& address) {
  throw Error(Errc::unsupported, "cannot use '" + parse_redis_address(address).text() + "': this build has no Redis")
      .with_hint("build with hiredis");
}

}  // namespace

std::unique_ptr<Outlet> open_redis_outlet(const std::string& address, const std::string& /*password*/) {
  refuse(address);
}

std::unique_ptr<Inlet> open_redis_inlet(const std::string& address, const std::string& /*password*/,
                                        const std::string& /*scratch*/) {
  refuse(address);
}

}  // namespace ckpt::doors

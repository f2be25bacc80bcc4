// SPDX-License-Identifier: Apache-2.0
#include "doors/redis_doors.hpp"

#include "doors/redis_inlet.hpp"
#include "doors/redis_outlet.hpp"

namespace ckpt::doors {

std::unique_ptr<Outlet> open_redis_outlet(const std::string& address, const std::string& password) {
  return std::make_unique<RedisOutlet>(parse_redis_address(address), password);
}

std::unique_ptr<Inlet> open_redis_inlet(const std::string& address, const std::string& password,
                                        const std::string& scratch) {
  return std::make_unique<RedisInlet>(parse_redis_address(address), password, scratch);
}

}  // namespace ckpt::doors

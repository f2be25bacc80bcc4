// SPDX-License-Identifier: Apache-2.0
#include "doors/doors.hpp"

#include "doors/redis_address.hpp"
#include "doors/redis_doors.hpp"

#include <ckpt/error.hpp>

namespace ckpt::doors {
namespace {

[[noreturn]] void throw_unknown(const std::string& address) {
  throw Error(Errc::invalid_argument, "'" + address + "' is no address of a queue");
}

}  // namespace

std::unique_ptr<Outlet> open_queue_outlet(const std::string& address, const StageOptions& options) {
  if (is_redis_address(address)) return open_redis_outlet(address, options.queue_password);
  throw_unknown(address);
}

std::unique_ptr<Inlet> open_queue_inlet(const std::string& address, const std::string& scratch,
                                        const ServeOptions& options) {
  if (is_redis_address(address)) return open_redis_inlet(address, options.queue_password, scratch);
  throw_unknown(address);
}

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
// The two ends of a queue in Redis, or an error that says why this build has none.
#pragma once

#include "doors/door.hpp"

#include <memory>
#include <string>

namespace ckpt::doors {

/// `address` as parse_redis_address() takes it; `password` may be empty. Nothing is reached for yet. Throws unsupported
/// in a build without hiredis, invalid_argument for a malformed address.
[[nodiscard]] std::unique_ptr<Outlet> open_redis_outlet(const std::string& address, const std::string& password);

/// `scratch` is a directory that exists, on the store's disk, where states are put together.
[[nodiscard]] std::unique_ptr<Inlet> open_redis_inlet(const std::string& address, const std::string& password,
                                                      const std::string& scratch);

}  // namespace ckpt::doors

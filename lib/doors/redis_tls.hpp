// SPDX-License-Identifier: Apache-2.0
// TLS on a connection to Redis, where hiredis was built with it.
#pragma once

#include "doors/redis_address.hpp"

struct redisContext;

namespace ckpt::doors {

/// Throws unsupported if this build has no TLS, invalid_argument for a certificate that can't be used, RedisTrouble if
/// the other side doesn't go along.
void start_tls(redisContext& context, const RedisAddress& address);

}  // namespace ckpt::doors

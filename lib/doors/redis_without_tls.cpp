// SPDX-License-Identifier: Apache-2.0
// Stands in for redis_tls.cpp where hiredis has no TLS.
#include "doors/redis_tls.hpp"

#include <ckpt/error.hpp>

namespace ckpt::doors {

void start_tls(redisContext& /*context*/, const RedisAddress& address) {
  throw Error(Errc::unsupported, "cannot reach '" + address.text() + "': this build has no TLS for Redis")
      .with_hint(
          "build with hiredis 1.0 or newer and its hiredis_ssl, or tunnel redis:// through something that encrypts");
}

}  // namespace ckpt::doors

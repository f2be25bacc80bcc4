// SPDX-License-Identifier: Apache-2.0
#include "transport/redis_tls.hpp"

#include "transport/redis_connection.hpp"

#include <ckpt/error.hpp>

#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <memory>

namespace ckpt::transport {

void start_tls(redisContext& context, const RedisAddress& address) {
  static const int initialised = redisInitOpenSSL();
  if (initialised != REDIS_OK) throw Error(Errc::unsupported, "OpenSSL can't be initialised");
  const auto given = [](const std::string& path) { return path.empty() ? nullptr : path.c_str(); };
  redisSSLContextError error = REDIS_SSL_CTX_NONE;
  const std::unique_ptr<redisSSLContext, decltype(&redisFreeSSLContext)> tls(
      redisCreateSSLContext(given(address.ca_file), address.ca_file.empty() ? "/etc/ssl/certs" : nullptr,
                            given(address.cert_file), given(address.cert_key_file), address.host.c_str(), &error),
      &redisFreeSSLContext);
  if (tls == nullptr) {
    throw Error(Errc::invalid_argument,
                "cannot use the certificates for '" + address.text() + "': " + redisSSLContextGetError(error));
  }
  if (redisInitiateSSLWithContext(&context, tls.get()) != REDIS_OK)
    throw RedisTrouble(Errc::busy, "no TLS with '" + address.text() + "': " + context.errstr);
}

}  // namespace ckpt::transport

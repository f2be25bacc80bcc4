// SPDX-License-Identifier: Apache-2.0
// Where a queue is: redis://[USER@]HOST:PORT[/DB]?key=NAME, or rediss:// for TLS. A password never stands in it.
#pragma once

#include <cstdint>
#include <string>

namespace ckpt::doors {

struct RedisAddress {
  bool tls = false;
  std::string user;  ///< empty: the default one
  std::string host;  ///< without the brackets of an IPv6 address
  std::uint16_t port = 6379;
  std::uint32_t database = 0;
  std::string key;            ///< the queue's name: all its keys begin with it
  std::string password_file;  ///< empty: none
  std::string ca_file;        ///< of TLS; empty: the system's
  std::string cert_file;      ///< of TLS: who we are, with cert_key_file; empty: not said
  std::string cert_key_file;

  /// For messages: it holds no secret.
  [[nodiscard]] std::string text() const;
};

/// True if an address names a Redis queue, well formed or not.
[[nodiscard]] bool is_redis_address(const std::string& text);

/// Parameters: key=NAME, which has to be there; password-file=PATH; with rediss:// cacert=PATH, cert=PATH and
/// cert-key=PATH. %XX stands for any byte but NUL. Throws invalid_argument.
[[nodiscard]] RedisAddress parse_redis_address(const std::string& text);

/// The password to log in with: the file's first line if the address names one, else `given`. Empty: none.
/// Throws invalid_argument, not_found, io.
[[nodiscard]] std::string redis_password(const RedisAddress& address, const std::string& given);

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
// OpenSSL is set up here and not by hiredis, whose own way doesn't compare the certificate's name with the host's.
#include "doors/redis_tls.hpp"

#include "doors/redis_connection.hpp"

#include <ckpt/error.hpp>

#include <arpa/inet.h>
#include <hiredis.h>
#include <hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <array>
#include <memory>
#include <new>

namespace ckpt::doors {
namespace {

struct Free {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* tls) const { SSL_free(tls); }
};

std::string last_reason() {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  return text.data();
}

void require(bool success, const std::string& what) {
  if (!success) throw Error(Errc::invalid_argument, "cannot use " + what + ": " + last_reason());
}

bool is_ip(const std::string& host) {
  std::array<unsigned char, sizeof(struct in6_addr)> binary{};
  return ::inet_pton(AF_INET, host.c_str(), binary.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), binary.data()) == 1;
}

std::unique_ptr<SSL_CTX, Free> make_context(const RedisAddress& address) {
  std::unique_ptr<SSL_CTX, Free> context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) throw std::bad_alloc();
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  require(SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1, "TLS 1.2");
  if (address.ca_file.empty()) {
    require(SSL_CTX_set_default_verify_paths(context.get()) == 1, "the system's certificates");
  } else {
    require(SSL_CTX_load_verify_locations(context.get(), address.ca_file.c_str(), nullptr) == 1,
            "the certificates in '" + address.ca_file + "'");
  }
  if (address.cert_file.empty()) return context;
  require(SSL_CTX_use_certificate_chain_file(context.get(), address.cert_file.c_str()) == 1,
          "the certificate '" + address.cert_file + "'");
  require(SSL_CTX_use_PrivateKey_file(context.get(), address.cert_key_file.c_str(), SSL_FILETYPE_PEM) == 1,
          "the key '" + address.cert_key_file + "'");
  return context;
}

void expect_host(SSL* tls, const std::string& host) {
  if (is_ip(host)) {
    require(X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls), host.c_str()) == 1, "the host '" + host + "'");
    return;
  }
  require(SSL_set1_host(tls, host.c_str()) == 1, "the host '" + host + "'");
  // SSL_set_tlsext_host_name() without its C cast.
  std::string name = host;
  require(SSL_ctrl(tls, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data()) == 1,
          "the host '" + host + "'");
}

}  // namespace

void start_tls(redisContext& context, const RedisAddress& address) {
  ERR_clear_error();
  const auto shared = make_context(address);
  std::unique_ptr<SSL, Free> tls(SSL_new(shared.get()));
  if (tls == nullptr) throw std::bad_alloc();
  expect_host(tls.get(), address.host);
  SSL* borrowed = tls.get();
  if (redisInitiateSSL(&context, borrowed) == REDIS_OK) {
    (void)tls.release();  // the connection's from now on
    return;
  }
  const std::string what = "no TLS with '" + address.text() + "': ";
  const long verdict = SSL_get_verify_result(borrowed);
  if (verdict == X509_V_OK) throw RedisTrouble(Errc::busy, what + context.errstr);
  throw Error(Errc::invalid_argument, what + X509_verify_cert_error_string(verdict))
      .with_hint("see cacert in ckpt-queue(7)");
}

}  // namespace ckpt::doors

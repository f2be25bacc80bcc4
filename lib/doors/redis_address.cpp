// SPDX-License-Identifier: Apache-2.0
#include "doors/redis_address.hpp"

#include "os/small_file.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace ckpt::doors {
namespace {

constexpr std::string_view plain_scheme = "redis://";
constexpr std::string_view tls_scheme = "rediss://";
constexpr std::size_t max_text = 4096;
constexpr std::size_t max_host = 255;
constexpr std::size_t max_user = 255;
constexpr std::size_t max_key = 255;
constexpr std::uint32_t max_database = 1U << 20U;
constexpr std::uint64_t max_password_file = 4096;

class Parser {
 public:
  explicit Parser(const std::string& text) : text_(text) {}

  RedisAddress parse() {
    if (text_.size() > max_text) fail("it is too long");
    if (text_.find('\0') != std::string::npos) fail("it holds a NUL");
    std::string_view rest = text_;
    address_.tls = rest.starts_with(tls_scheme);
    if (!address_.tls && !rest.starts_with(plain_scheme)) fail("it begins with neither redis:// nor rediss://");
    rest.remove_prefix(address_.tls ? tls_scheme.size() : plain_scheme.size());

    std::string_view parameters;
    if (const std::size_t mark = rest.find('?'); mark != std::string_view::npos) {
      parameters = rest.substr(mark + 1);
      rest = rest.substr(0, mark);
    }
    if (const std::size_t slash = rest.find('/'); slash != std::string_view::npos) {
      const std::string_view database = rest.substr(slash + 1);
      if (!database.empty()) address_.database = number(database, 0, max_database, "the database");
      rest = rest.substr(0, slash);
    }
    if (const std::size_t at = rest.rfind('@'); at != std::string_view::npos) {
      take_user(rest.substr(0, at));
      rest = rest.substr(at + 1);
    }
    take_host_and_port(rest);
    while (!parameters.empty()) {
      const std::size_t end = std::min(parameters.find('&'), parameters.size());
      take_parameter(parameters.substr(0, end));
      parameters.remove_prefix(std::min(end + 1, parameters.size()));
    }
    if (address_.key.empty()) fail("it names no queue: ?key=NAME is missing");
    if (address_.cert_file.empty() != address_.cert_key_file.empty()) fail("cert and cert-key go together");
    return address_;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    // What was written before an @ may be a password, and messages end up in logs.
    const std::size_t begin = text_.find("://");
    const std::size_t end = text_.find('@');
    std::string shown = text_.substr(0, 200);
    if (begin != std::string::npos && end != std::string::npos && begin + 3 < end && end < shown.size())
      shown.replace(begin + 3, end - begin - 3, "...");
    throw Error(Errc::invalid_argument, "'" + shown + "' is no address of a queue: " + why)
        .with_hint("an address is redis://[USER@]HOST:PORT[/DB]?key=NAME");
  }

  [[nodiscard]] std::uint32_t number(std::string_view digits, std::uint32_t least, std::uint32_t most,
                                     const char* what) const {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size() || value < least || value > most) {
      fail(std::string(what) + " is not a number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
  }

  [[nodiscard]] std::string decoded(std::string_view part, const char* what, std::size_t most) const {
    std::string out;
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i] != '%') {
        out.push_back(part[i]);
        continue;
      }
      unsigned value = 0;
      const char* begin = part.data() + i + 1;
      if (part.size() - i < 3 || std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2 || value == 0)
        fail(std::string(what) + " has a % without two hex digits");
      out.push_back(static_cast<char>(value));
      i += 2;
    }
    if (out.empty()) fail(std::string(what) + " is empty");
    if (out.size() > most) fail(std::string(what) + " is too long");
    return out;
  }

  void take_user(std::string_view user) {
    if (user.find(':') != std::string_view::npos) {
      throw Error(Errc::invalid_argument, "the address of a queue holds no password")
          .with_hint("put it into a file and add password-file=PATH to the address, or into REDISCLI_AUTH");
    }
    address_.user = decoded(user, "the user", max_user);
  }

  void take_host_and_port(std::string_view rest) {
    std::string_view host;
    if (rest.starts_with('[')) {
      const std::size_t close = rest.find(']');
      if (close == std::string_view::npos) fail("a bracket is not closed");
      host = rest.substr(1, close - 1);
      rest.remove_prefix(close + 1);
    } else {
      host = rest.substr(0, rest.find(':'));
      rest.remove_prefix(host.size());
    }
    if (host.empty()) fail("it names no host");
    if (host.size() > max_host) fail("the host is too long");
    const auto is_odd = [](char c) { return static_cast<unsigned char>(c) <= ' ' || c == '%' || c == '\x7f'; };
    if (std::any_of(host.begin(), host.end(), is_odd)) fail("the host has a character that no host has");
    address_.host = host;
    if (!rest.starts_with(':')) fail("it names no port");
    address_.port = static_cast<std::uint16_t>(number(rest.substr(1), 1, 65535, "the port"));
  }

  void take_parameter(std::string_view parameter) {
    const std::size_t equals = parameter.find('=');
    const std::string_view name = parameter.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : parameter.substr(equals + 1);
    std::string* place = nullptr;
    if (name == "key") place = &address_.key;
    if (name == "password-file") place = &address_.password_file;
    if (address_.tls && name == "cacert") place = &address_.ca_file;
    if (address_.tls && name == "cert") place = &address_.cert_file;
    if (address_.tls && name == "cert-key") place = &address_.cert_key_file;
    const std::string shown = "the parameter '" + std::string(name) + "'";
    if (place == nullptr) fail(shown + " is none that is known");
    if (!place->empty()) fail(shown + " is there twice");
    *place = decoded(value, shown.c_str(), place == &address_.key ? max_key : max_text);
  }

  const std::string& text_;
  RedisAddress address_;
};

std::string encoded(const std::string& text) {
  constexpr std::string_view hex = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte > ' ' && byte < 0x7f && std::string_view("%&?@/=").find(c) == std::string_view::npos) {
      out.push_back(c);
    } else {
      out.append({'%', hex[byte >> 4U], hex[byte & 15U]});
    }
  }
  return out;
}

}  // namespace

std::string RedisAddress::text() const {
  std::string out(tls ? tls_scheme : plain_scheme);
  if (!user.empty()) out += encoded(user) + "@";
  out += host.find(':') == std::string::npos ? host : "[" + host + "]";
  out += ":" + std::to_string(port);
  if (database != 0) out += "/" + std::to_string(database);
  return out + "?key=" + encoded(key);
}

bool is_redis_address(const std::string& text) {
  return text.starts_with(plain_scheme) || text.starts_with(tls_scheme);
}

RedisAddress parse_redis_address(const std::string& text) { return Parser(text).parse(); }

std::string redis_password(const RedisAddress& address, const std::string& given) {
  if (address.password_file.empty()) return given;
  const auto text = os::read_small_file(address.password_file, max_password_file);
  if (!text) throw Error(Errc::not_found, "there is no password file '" + address.password_file + "'");
  std::string password = text->substr(0, text->find('\n'));
  if (password.ends_with('\r')) password.pop_back();
  if (password.empty()) throw Error(Errc::invalid_argument, "'" + address.password_file + "' holds no password");
  return password;
}

}  // namespace ckpt::doors

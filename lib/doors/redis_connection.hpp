// SPDX-License-Identifier: Apache-2.0
// One connection to a Redis server: commands in, values out, every wait bounded. hiredis connects, parses replies and
// speaks TLS; what is large goes between the socket and the caller's memory without a stop.
#pragma once

#include "core/bytes.hpp"
#include "doors/redis_address.hpp"
#include "doors/redis_value.hpp"

#include <ckpt/error.hpp>

#include <chrono>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct redisContext;

namespace ckpt::doors {

/// Errc::busy: not reachable, cut off, too slow, or Redis can't for now (loading, out of memory). Trying again may
/// help.
class RedisTrouble : public Error {
 public:
  using Error::Error;
  /// Redis has no memory left for this.
  [[nodiscard]] bool is_full() const { return is_full_; }
  static RedisTrouble full(const std::string& message);

 private:
  bool is_full_ = false;
};

struct RedisLimits {
  std::chrono::milliseconds connect{5000};
  std::chrono::milliseconds answer{10000};  ///< without a byte moving
  std::size_t reply_bytes = std::size_t{64} << 20U;
};

/// Opens itself when it's needed; an error of the connection closes it, and then what was under way is lost. An error
/// that Redis answers is thrown and leaves it open: RedisTrouble if it may pass, else invalid_argument (login, a key of
/// another type), unsupported or io. Not thread-safe.
class RedisConnection {
 public:
  using Stop = std::function<bool()>;  ///< true: give up waiting with Errc::interrupted

  RedisConnection(RedisAddress address, std::string password, RedisLimits limits = {}, Stop stop = {});
  RedisConnection(RedisConnection&&) noexcept;
  RedisConnection& operator=(RedisConnection&&) noexcept;
  ~RedisConnection();

  [[nodiscard]] const RedisAddress& address() const { return address_; }
  [[nodiscard]] bool is_open() const { return context_ != nullptr; }
  void open();
  void close();
  /// The address of this side, as text; empty if it isn't open.
  [[nodiscard]] std::string local_address() const;

  [[nodiscard]] RedisValue call(const std::vector<std::string_view>& arguments);
  /// GET of a large value into `into`; its size, or nothing if there's no such key. Throws Damaged if it doesn't fit.
  [[nodiscard]] std::optional<std::size_t> get(std::string_view key, std::span<std::byte> into);

  /// Sends a command with an argument `value`, in parts, in its midst. Each needs one receive() later, in order.
  void send(const std::vector<std::string_view>& before, std::initializer_list<ByteView> value,
            const std::vector<std::string_view>& after = {});
  [[nodiscard]] RedisValue receive();

 private:
  struct Free {
    void operator()(redisContext* context) const;
  };
  using Clock = std::chrono::steady_clock;

  void login();
  void write(ByteView bytes);
  void write_tls(ByteView bytes);
  /// Feeds the parser with what comes next.
  void read_more();
  void read_exactly(std::span<std::byte> into);
  /// The first line of the reply that comes next, left where it is.
  [[nodiscard]] std::string peek_line();
  void wait_for(short events);
  void require_no_stop();
  [[noreturn]] void lose(const std::string& why);

  RedisAddress address_;
  std::string password_;
  RedisLimits limits_;
  Stop stop_;
  std::unique_ptr<redisContext, Free> context_;
};

}  // namespace ckpt::doors

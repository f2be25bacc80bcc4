// SPDX-License-Identifier: Apache-2.0
#include "doors/redis_connection.hpp"

#include "doors/redis_tls.hpp"
#include "format/damaged.hpp"

#include <hiredis.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <system_error>
#include <thread>
#include <utility>

namespace ckpt::doors {
namespace {

/// How often a wait looks whether it's still wanted.
constexpr int glance_ms = 50;

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using ReplyPointer = std::unique_ptr<redisReply, FreeReply>;

struct timeval to_timeval(std::chrono::milliseconds time) {
  return {.tv_sec = time.count() / 1000, .tv_usec = time.count() % 1000 * 1000};
}

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return text.starts_with(word); });
}

/// Older servers wrap what a command in a script answered.
std::string_view without_wrapping(std::string_view text) {
  if (!text.starts_with("ERR Error running script")) return text;
  const std::size_t dash = text.find(": -");
  return dash == std::string_view::npos ? text : text.substr(dash + 3);
}

[[noreturn]] void throw_answer(const RedisAddress& address, std::string_view answer) {
  const std::string_view text = without_wrapping(answer);
  const std::string message = "'" + address.text() + "' answers: " + std::string(text.substr(0, 300));
  if (text.starts_with("OOM")) throw RedisTrouble::full(message);
  if (begins_with_any(text, {"LOADING", "BUSY ", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "READONLY",
                             "NOREPLICAS", "ERR max number of clients"})) {
    throw RedisTrouble(Errc::busy, message);
  }
  if (begins_with_any(text, {"NOAUTH", "WRONGPASS", "NOPERM", "ERR invalid password", "ERR AUTH", "ERR Client sent"})) {
    throw Error(Errc::invalid_argument, message).with_hint("see password-file and REDISCLI_AUTH in the manual");
  }
  if (begins_with_any(text, {"WRONGTYPE", "ERR DB index"})) {
    throw Error(Errc::invalid_argument, message).with_hint("give the queue a key and a database of its own");
  }
  if (begins_with_any(text, {"ERR unknown command", "ERR Unknown Redis command", "ERR unknown subcommand"}))
    throw Error(Errc::unsupported, message).with_hint("a queue needs Redis 6.2 or newer");
  throw Error(Errc::io, message);
}

RedisValue to_value(const redisReply& reply) {
  switch (reply.type) {
    case REDIS_REPLY_NIL: return {};
    case REDIS_REPLY_INTEGER: return RedisValue(std::int64_t{reply.integer});
    case REDIS_REPLY_ARRAY: {
      std::vector<RedisValue> items;
      items.reserve(reply.elements);
      for (std::size_t i = 0; i < reply.elements; ++i) items.push_back(to_value(*reply.element[i]));
      return RedisValue(std::move(items));
    }
    default: return RedisValue(std::string(reply.str, reply.len));
  }
}

void append_header(std::string& to, char kind, std::size_t number) {
  to += kind;
  to += std::to_string(number);
  to += "\r\n";
}

void append_argument(std::string& to, std::string_view argument) {
  append_header(to, '$', argument.size());
  to += argument;
  to += "\r\n";
}

/// For the library that writes without MSG_NOSIGNAL: the other end's death must not be this process's.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigset_t pending;
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    was_pending_ = ::sigpending(&pending) == 0 && ::sigismember(&pending, SIGPIPE) == 1;
    blocked_ = ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_) == 0;
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;
  ~WithoutSigpipe() {
    if (!blocked_) return;
    const struct timespec none {};
    if (!was_pending_) (void)::sigtimedwait(&pipe_, nullptr, &none);
    (void)::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_ = false;
  bool blocked_ = false;
};

}  // namespace

RedisTrouble RedisTrouble::full(const std::string& message) {
  RedisTrouble trouble(Errc::busy, message);
  trouble.is_full_ = true;
  return trouble;
}

void RedisConnection::Free::operator()(redisContext* context) const { redisFree(context); }

RedisConnection::RedisConnection(RedisAddress address, std::string password, RedisLimits limits, Stop stop)
    : address_(std::move(address)), password_(std::move(password)), limits_(limits), stop_(std::move(stop)) {}
RedisConnection::RedisConnection(RedisConnection&&) noexcept = default;
RedisConnection& RedisConnection::operator=(RedisConnection&&) noexcept = default;
RedisConnection::~RedisConnection() = default;

void RedisConnection::open() {
  if (context_ != nullptr) return;
  require_no_stop();
  context_.reset(redisConnectWithTimeout(address_.host.c_str(), address_.port, to_timeval(limits_.connect)));
  if (context_ == nullptr) throw std::bad_alloc();
  if (context_->err != 0) lose(context_->errstr);
  // Large values come one after the other: the parser's buffer is kept.
  context_->reader->maxbuf = 0;
  try {
    if (redisSetTimeout(context_.get(), to_timeval(limits_.answer)) != REDIS_OK) lose(context_->errstr);
    if (redisEnableKeepAlive(context_.get()) != REDIS_OK) lose(context_->errstr);
    if (address_.tls) {
      const WithoutSigpipe guard;
      start_tls(*context_, address_);
    }
    login();
  } catch (...) {
    close();
    throw;
  }
}

void RedisConnection::close() { context_.reset(); }

std::string RedisConnection::local_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::array<char, NI_MAXHOST> text{};
  if (context_ == nullptr || ::getsockname(context_->fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) != 0)
    return {};
  return text.data();
}

void RedisConnection::login() {
  if (!password_.empty()) {
    if (address_.user.empty()) {
      (void)call({"AUTH", password_});
    } else {
      (void)call({"AUTH", address_.user, password_});
    }
  }
  if (address_.database != 0) (void)call({"SELECT", std::to_string(address_.database)});
}

RedisValue RedisConnection::call(const std::vector<std::string_view>& arguments) {
  const std::string_view last = arguments.back();
  send({arguments.begin(), arguments.end() - 1}, {as_bytes(last)});
  return receive();
}

void RedisConnection::send(const std::vector<std::string_view>& before, std::initializer_list<ByteView> value,
                           const std::vector<std::string_view>& after) {
  open();
  std::size_t size = 0;
  for (const ByteView part : value) size += part.size();
  std::string head;
  append_header(head, '*', before.size() + 1 + after.size());
  for (const std::string_view argument : before) append_argument(head, argument);
  append_header(head, '$', size);
  std::string tail = "\r\n";
  for (const std::string_view argument : after) append_argument(tail, argument);
  constexpr std::size_t small = 65536;
  if (size <= small) {
    for (const ByteView part : value) head += as_text(part);
    return write(as_bytes(head + tail));
  }
  write(as_bytes(head));
  for (const ByteView part : value) write(part);
  write(as_bytes(tail));
}

RedisValue RedisConnection::receive() {
  if (context_ == nullptr) lose("the connection is closed");
  void* got = nullptr;
  while (true) {
    if (redisReaderGetReply(context_->reader, &got) != REDIS_OK) lose(context_->reader->errstr);
    if (got != nullptr) break;
    if (context_->reader->len > limits_.reply_bytes) lose("the answer is too large");
    read_more();
  }
  const ReplyPointer reply(static_cast<redisReply*>(got));
  if (reply->type == REDIS_REPLY_ERROR) throw_answer(address_, {reply->str, reply->len});
  return to_value(*reply);
}

std::optional<std::size_t> RedisConnection::get(std::string_view key, std::span<std::byte> into) {
  send({"GET"}, {as_bytes(key)});
  const auto too_large = [&](std::size_t size) {
    return format::Damaged(DamageKind::altered, 0, size,
                           "'" + std::string(key) + "' is larger than it can be: " + std::to_string(size) + " bytes");
  };
  if (address_.tls) {
    const RedisValue value = receive();
    if (value.is_nil()) return std::nullopt;
    const ByteView bytes = as_bytes(value.text());
    if (bytes.size() > into.size()) throw too_large(bytes.size());
    std::copy(bytes.begin(), bytes.end(), into.begin());
    return bytes.size();
  }
  const std::string line = peek_line();
  if (!line.starts_with('$') || line.starts_with("$-")) {
    if (!receive().is_nil()) lose("the answer to GET is no text");
    return std::nullopt;
  }
  const std::string_view digits = std::string_view(line).substr(1, line.size() - 3);
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos)
    lose("the answer is malformed");
  const std::uint64_t size = redis_number(digits);
  if (size > into.size()) {
    close();
    throw too_large(size);
  }
  std::array<std::byte, 32> around{};
  read_exactly(std::span(around).first(line.size()));
  read_exactly(into.first(size));
  read_exactly(std::span(around).first(2));
  return size;
}

std::string RedisConnection::peek_line() {
  std::array<char, 32> begin{};
  const auto deadline = Clock::now() + limits_.answer;
  while (true) {
    wait_for(POLLIN);
    const ssize_t got = ::recv(context_->fd, begin.data(), begin.size(), MSG_PEEK | MSG_DONTWAIT);
    if (got == 0) lose("it closed the connection");
    if (got < 0 && errno != EINTR && errno != EAGAIN) lose(std::generic_category().message(errno));
    const std::string_view seen(begin.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    if (!seen.empty() && seen.front() != '$') return std::string(seen);
    if (const std::size_t end = seen.find("\r\n"); end != std::string_view::npos)
      return std::string(seen.substr(0, end + 2));
    if (seen.size() == begin.size()) lose("the answer is malformed");
    if (Clock::now() > deadline) lose("no answer in time");
    // Half a line: polling would say at once that there's something.
    if (!seen.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void RedisConnection::read_exactly(std::span<std::byte> into) {
  while (!into.empty()) {
    const ssize_t got = ::recv(context_->fd, into.data(), into.size(), MSG_DONTWAIT);
    if (got == 0) lose("it closed the connection");
    if (got > 0) {
      into = into.subspan(static_cast<std::size_t>(got));
    } else if (errno == EAGAIN) {
      wait_for(POLLIN);
    } else if (errno != EINTR) {
      lose(std::generic_category().message(errno));
    }
  }
}

void RedisConnection::read_more() {
  if (address_.tls) {
    require_no_stop();
    const WithoutSigpipe guard;
    if (redisBufferRead(context_.get()) != REDIS_OK) lose(context_->errstr);
    return;
  }
  std::array<char, 65536> chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled by recv
  wait_for(POLLIN);
  const ssize_t got = ::recv(context_->fd, chunk.data(), chunk.size(), MSG_DONTWAIT);
  if (got == 0) lose("it closed the connection");
  if (got < 0) {
    if (errno == EINTR || errno == EAGAIN) return;
    lose(std::generic_category().message(errno));
  }
  if (redisReaderFeed(context_->reader, chunk.data(), static_cast<std::size_t>(got)) != REDIS_OK)
    lose(context_->reader->errstr);
}

void RedisConnection::write(ByteView bytes) {
  if (context_ == nullptr) lose("the connection is closed");
  if (address_.tls) return write_tls(bytes);
  while (!bytes.empty()) {
    const ssize_t sent = ::send(context_->fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      wait_for(POLLOUT);
    } else if (errno != EINTR) {
      lose(std::generic_category().message(errno));
    }
  }
}

void RedisConnection::write_tls(ByteView bytes) {
  if (redisAppendFormattedCommand(context_.get(), as_text(bytes).data(), bytes.size()) != REDIS_OK)
    lose(context_->errstr);
  const WithoutSigpipe guard;
  for (int all_written = 0; all_written == 0;) {
    require_no_stop();
    if (redisBufferWrite(context_.get(), &all_written) != REDIS_OK) lose(context_->errstr);
  }
}

void RedisConnection::wait_for(short events) {
  const auto deadline = Clock::now() + limits_.answer;
  while (true) {
    require_no_stop();
    struct pollfd ready {
      .fd = context_->fd, .events = events, .revents = 0
    };
    const int count = ::poll(&ready, 1, glance_ms);
    if (count > 0) return;
    if (count < 0 && errno != EINTR) lose(std::generic_category().message(errno));
    if (Clock::now() > deadline) lose("no answer in time");
  }
}

void RedisConnection::require_no_stop() {
  if (!stop_ || !stop_()) return;
  close();
  throw Error(Errc::interrupted, "interrupted");
}

void RedisConnection::lose(const std::string& why) {
  const std::string message = "cannot reach '" + address_.text() + "': " + why;
  close();
  throw RedisTrouble(Errc::busy, message);
}

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
#include "run/tcp_board.hpp"

#include "run/ticks.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

namespace ckpt::run {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds between_tries(250);
constexpr std::chrono::seconds between_node_signs(1);

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// Empty, with the reason in `why`, if the name isn't known (yet).
Addresses addresses_of(const std::string& host, const std::string& port, int flags, std::string& why) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int result = ::getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &wanted, &found);
  if (result != 0) why = ::gai_strerror(result);
  return Addresses(result == 0 ? found : nullptr);
}

os::Fd open_socket(const addrinfo& address) {
  return os::Fd(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
}

void send_at_once(int socket) {
  const int on = 1;
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

std::string node_name_of(std::uint32_t node_rank) { return fmt::format("{:05}", node_rank); }

Meeting parse_meeting(const std::string& text) {
  const auto fail = [&](const char* why) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' is no HOST:PORT: {}", text, why));
  };
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) fail("it names no port");
  Meeting meeting{.host = text.substr(0, colon), .port = text.substr(colon + 1)};
  if (meeting.host.starts_with('[') && meeting.host.ends_with(']'))
    meeting.host = meeting.host.substr(1, meeting.host.size() - 2);
  unsigned number = 0;
  const char* const end = meeting.port.data() + meeting.port.size();
  const auto [stop, error] = std::from_chars(meeting.port.data(), end, number);
  if (error != std::errc() || stop != end || number < 1 || number > 65535) fail("its port isn't one from 1 to 65535");
  if (meeting.host.empty()) fail("it names no host");
  return meeting;
}

std::unique_ptr<Board> open_tcp_board(const RunOptions& options) {
  if (options.node_rank == 0) return std::make_unique<TcpHub>(options);
  return std::make_unique<TcpSpoke>(options);
}

// Node 0.

TcpHub::TcpHub(const RunOptions& options) : count_(options.nodes), silence_(ticks(Seconds(options.lease_seconds))) {
  const Meeting meeting = parse_meeting(options.meeting);
  listen(meeting.host, meeting.port);
}

void TcpHub::listen(const std::string& host, const std::string& port) {
  std::string why;
  int error = 0;
  const auto bind_to = [&](const std::string& name) {
    const Addresses list = addresses_of(name, port, AI_PASSIVE, why);
    for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
      os::Fd socket = open_socket(*address);
      const int on = 1;
      if (socket.valid() && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
          ::bind(socket.get(), address->ai_addr, address->ai_addrlen) == 0 && ::listen(socket.get(), SOMAXCONN) == 0) {
        socket_ = std::move(socket);
        return true;
      }
      error = errno;
    }
    return false;
  };
  if (bind_to(host)) return;
  // A name may lead here through a translation that this host knows nothing of.
  if (error == EADDRNOTAVAIL && bind_to({})) return;
  const std::string what = fmt::format("cannot listen at '{}:{}'", host, port);
  if (error == EADDRINUSE) throw Error(Errc::busy, what + ": another program does", error);
  if (error != 0) os::throw_errno(error, what);
  throw Error(Errc::invalid_argument, what + ": " + why);
}

void TcpHub::add_to(std::vector<pollfd>& watched) const {
  watched.push_back({.fd = socket_.get(), .events = POLLIN, .revents = 0});
  for (const Peer& peer : peers_) peer.channel.add_to(watched);
}

void TcpHub::take_connections(Time now) {
  // Others than the nodes get no place for long.
  const std::size_t most = std::size_t{2} * count_ + 16;
  while (peers_.size() < most) {
    os::Fd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) return;
    send_at_once(socket.get());
    peers_.push_back({.channel = LineChannel(std::move(socket)), .heard = now, .told = {}, .state = {}});
  }
}

void TcpHub::refuse(Peer& peer, Errc code, const std::string& why) {
  peer.state.reset();
  peer.channel.send({{"refused", why}, {"code", static_cast<int>(code)}});
  peer.channel.end_sending();
}

void TcpHub::take(Peer& peer, const json& line) {
  NodeState state = node_state_from(line.at("node"));
  const auto count = line.at("nodes").get<std::uint32_t>();
  if (count != count_) {
    refuse(peer, Errc::invalid_argument,
           fmt::format("node 0 was started for {} nodes, and this one for {}", count_, count));
    return;
  }
  if (state.name == node_name_of(0) || state.name >= node_name_of(count_)) {
    refuse(peer, Errc::invalid_argument, fmt::format("there is no other node {} of {}", state.name, count_));
    return;
  }
  const bool is_taken = std::any_of(peers_.begin(), peers_.end(), [&](const Peer& other) {
    return &other != &peer && other.channel.is_open() && other.state && other.state->name == state.name;
  });
  if (is_taken) {
    refuse(peer, Errc::busy, fmt::format("another node {} is there: each has a --node-rank of its own", state.name));
    return;
  }
  std::erase_if(left_, [&](const NodeState& left) { return left.name == state.name; });
  peer.state = std::move(state);
}

void TcpHub::turn(Time now) {
  take_connections(now);
  for (Peer& peer : peers_) {
    try {
      for (const json& line : peer.channel.receive()) {
        peer.heard = now;
        take(peer, line);
      }
    } catch (const Error&) {
      peer.channel.close();
    } catch (const json::exception&) {
      peer.channel.close();
    }
    if (now - peer.heard > silence_) peer.channel.close();
    if (!peer.channel.is_open() && peer.state && !peer.state->trouble.empty()) left_.push_back(*peer.state);
  }
  std::erase_if(peers_, [](const Peer& peer) { return !peer.channel.is_open(); });
  nodes_ = left_;
  if (own_) nodes_.push_back(*own_);
  for (const Peer& peer : peers_) {
    if (peer.state) nodes_.push_back(*peer.state);
  }
  keep_in_touch(now);
}

void TcpHub::keep_in_touch(Time now) {
  for (Peer& peer : peers_) tell(peer, now);
}

void TcpHub::tell(Peer& peer, Time now) {
  peer.channel.flush();
  if (!peer.state || !peer.channel.is_drained()) return;
  if (peer.told && now - *peer.told < between_node_signs) return;
  peer.channel.send({{"job", to_json(*job_)}});
  peer.told = now;
}

void TcpHub::decide(const JobState& state) {
  job_ = state;
  for (Peer& peer : peers_) peer.told.reset();
  keep_in_touch(Clock::now());
}

void TcpHub::leave() {
  socket_ = os::Fd();
  const auto end = Clock::now() + farewell;
  for (Peer& peer : peers_) peer.told.reset();
  while (!peers_.empty() && Clock::now() < end) {
    keep_in_touch(Clock::now());
    std::vector<pollfd> watched;
    for (Peer& peer : peers_) {
      // It leaves by itself once it knows.
      if (peer.told && peer.channel.is_drained()) peer.channel.end_sending();
      peer.channel.add_to(watched);
    }
    (void)::poll(watched.data(), watched.size(), 50);
    for (Peer& peer : peers_) (void)peer.channel.receive();
    std::erase_if(peers_, [](const Peer& peer) { return !peer.channel.is_open() || !peer.state; });
  }
  peers_.clear();
}

// The others.

TcpSpoke::TcpSpoke(const RunOptions& options)
    : meeting_(options.meeting),
      count_(options.nodes),
      silence_(ticks(Seconds(options.lease_seconds))),
      join_end_(Clock::now() + ticks(Seconds(options.join_seconds))) {
  (void)parse_meeting(meeting_);
}

void TcpSpoke::add_to(std::vector<pollfd>& watched) const {
  if (channel_) channel_->add_to(watched);
}

void TcpSpoke::publish(const NodeState& state) { saying_.set(state); }

void TcpSpoke::connect(Time now) {
  if (now < next_try_) return;
  next_try_ = now + between_tries;
  const Meeting meeting = parse_meeting(meeting_);
  std::string why = "nobody listens there";
  const Addresses list = addresses_of(meeting.host, meeting.port, 0, why);
  for (const addrinfo* address = list.get(); address != nullptr; address = address->ai_next) {
    os::Fd socket = open_socket(*address);
    if (!socket.valid()) continue;
    if (::connect(socket.get(), address->ai_addr, address->ai_addrlen) != 0 && errno != EINPROGRESS) {
      why = fmt::format("{}", std::generic_category().message(errno));
      continue;
    }
    pollfd writable{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    // There's nothing else to do before node 0 is there, but signals want to be seen.
    (void)::poll(&writable, 1, static_cast<int>(between_tries.count()));
    int error = 0;
    socklen_t size = sizeof error;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
    if (error == 0 && writable.revents == 0) error = ETIMEDOUT;
    if (error != 0) {
      why = std::generic_category().message(error);
      continue;
    }
    send_at_once(socket.get());
    channel_.emplace(std::move(socket));
    heard_ = Clock::now();
    return;
  }
  if (now >= join_end_) throw Error(Errc::busy, fmt::format("cannot reach node 0 at '{}': {}", meeting_, why));
}

void TcpSpoke::take(const json& line) {
  if (line.contains("refused")) {
    const Errc code = line.value("code", 0) == static_cast<int>(Errc::busy) ? Errc::busy : Errc::invalid_argument;
    throw Error(code, "node 0 refuses this one: " + line.at("refused").get<std::string>());
  }
  job_ = job_state_from(line.at("job"));
}

void TcpSpoke::turn(Time now) {
  if (!channel_) connect(now);
  if (!channel_) return;
  tell(now);
  try {
    for (const json& line : channel_->receive()) {
      heard_ = now;
      take(line);
    }
  } catch (const json::exception& error) {
    throw Error(Errc::malformed, fmt::format("what '{}' says is not what node 0 would: {}", meeting_, error.what()));
  }
  if (is_over() || (channel_->is_open() && now - heard_ <= silence_)) return;
  // One that doesn't know this node yet may have been started a moment ago, or be about to end.
  if (!job_ && now < join_end_) {
    channel_.reset();
    next_try_ = now + between_tries;
    return;
  }
  throw Error(Errc::busy, channel_->is_open() ? fmt::format("node 0 at '{}' is silent", meeting_)
                                              : fmt::format("node 0 at '{}' is gone", meeting_));
}

void TcpSpoke::tell(Time now) {
  if (!channel_) return;
  channel_->flush();
  if (!saying_.is_due(now) || !channel_->is_drained()) return;
  channel_->send({{"node", to_json(*saying_.state())}, {"nodes", count_}});
  saying_.set_said(now);
}

void TcpSpoke::leave() {
  if (!channel_) return;
  const auto end = Clock::now() + farewell;
  tell(Clock::now());
  while (channel_->is_open() && !channel_->is_drained() && Clock::now() < end) {
    std::vector<pollfd> watched;
    channel_->add_to(watched);
    (void)::poll(watched.data(), watched.size(), 50);
    channel_->flush();
    (void)channel_->receive();
  }
  channel_->end_sending();
  // What was said last isn't lost to what is still unread here.
  while (channel_->is_open() && Clock::now() < end) {
    std::vector<pollfd> watched;
    channel_->add_to(watched);
    (void)::poll(watched.data(), watched.size(), 50);
    (void)channel_->receive();
  }
}

}  // namespace ckpt::run

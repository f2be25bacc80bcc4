// SPDX-License-Identifier: Apache-2.0
#include "process_groups.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <stdexcept>
#include <vector>

namespace trainer {
namespace {

/// Longer than any rank lags behind; ckpt-run notices silence earlier.
constexpr std::chrono::minutes patience{5};

/// The address by which the master sees this rank. Left to itself, Gloo looks up the host's own name, which in network
/// namespaces and containers leads to nowhere, or to the loopback device.
std::string own_address(const std::string& master, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(master.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0)
    throw std::runtime_error("cannot look up MASTER_ADDR '" + master + "': " + ::gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, ::freeaddrinfo);
  std::string own;
  for (const addrinfo* to = found; to != nullptr && own.empty(); to = to->ai_next) {
    const int socket = ::socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    char name[NI_MAXHOST];
    // Connecting a datagram socket sends nothing: the kernel chooses the way.
    if (socket >= 0 && ::connect(socket, to->ai_addr, to->ai_addrlen) == 0 &&
        ::getsockname(socket, reinterpret_cast<sockaddr*>(&from), &size) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&from), size, name, sizeof name, nullptr, 0, NI_NUMERICHOST) == 0)
      own = name;
    if (socket >= 0) ::close(socket);
  }
  if (own.empty()) throw std::runtime_error("no way leads to MASTER_ADDR '" + master + "'");
  return own;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Gloo and c10d have exceptions of their own, and long ones.
template <class Call>
auto told(const char* what, Call&& call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    throw std::runtime_error(std::string(what) + ": " + first_line(error.what_without_backtrace()));
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string(what) + ": " + first_line(error.what()));
  }
}

}  // namespace

class Group::Connections {
 public:
  Connections(const c10::intrusive_ptr<c10d::Store>& store, const std::string& name, const std::string& address,
              std::int64_t rank, std::int64_t size)
      : gloo_(c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store),
                                                          static_cast<int>(rank), static_cast<int>(size),
                                                          options(address))) {}

  using Begin = std::function<c10::intrusive_ptr<c10d::Work>(c10d::ProcessGroupGloo&, std::vector<at::Tensor>&)>;
  void finish(const char* what, const at::Tensor& tensor, const Begin& begin) {
    told(what, [&] {
      std::vector<at::Tensor> tensors = {tensor};
      if (!begin(*gloo_, tensors)->wait()) throw std::runtime_error("it was given up");
    });
  }

 private:
  static c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> options(const std::string& address) {
    auto options = c10d::ProcessGroupGloo::Options::create(patience);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
    options->threads = 1;
    return options;
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
};

Place Place::of(std::int64_t rank, std::int64_t world_size, std::int64_t tp, std::int64_t pp) {
  if (world_size % (tp * pp) != 0) {
    throw std::runtime_error("a world of " + std::to_string(world_size) +
                             " can't be split by --tp=" + std::to_string(tp) + " and --pp=" + std::to_string(pp) +
                             "; start ckpt-run with --multiple-of=" + std::to_string(tp * pp));
  }
  return {world_size / (tp * pp), pp, tp, rank / (tp * pp), rank / tp % pp, rank % tp};
}

void Group::sum(const at::Tensor& tensor) const {
  if (connections_ == nullptr) return;
  connections_->finish("cannot sum over the ranks", tensor,
                       [](auto& gloo, auto& tensors) { return gloo.allreduce(tensors, c10d::AllreduceOptions()); });
}

void Group::send(const at::Tensor& tensor, std::int64_t to) const {
  connections_->finish("cannot send to the next stage", tensor,
                       [&](auto& gloo, auto& tensors) { return gloo.send(tensors, static_cast<int>(to), 0); });
}

void Group::receive(const at::Tensor& into, std::int64_t from) const {
  connections_->finish("cannot receive from the other stage", into,
                       [&](auto& gloo, auto& tensors) { return gloo.recv(tensors, static_cast<int>(from), 0); });
}

Groups Groups::connect(const Place& place, std::int64_t rank, std::int64_t world_size, const std::string& master,
                       std::uint16_t port) {
  if (world_size == 1) return {};
  return told("cannot connect the ranks", [&]() -> Groups {
    c10d::TCPStoreOptions options;
    options.port = port;
    options.isServer = rank == 0;
    options.numWorkers = static_cast<std::size_t>(world_size);
    options.timeout = patience;
    const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::TCPStore>(master, options);
    const std::string address = own_address(master, port);
    const auto group = [&](const std::string& name, std::int64_t number, std::int64_t in_group, std::int64_t size) {
      if (size == 1) return Group();
      return Group(std::make_shared<Group::Connections>(store, name + std::to_string(number), address, in_group, size));
    };
    const std::int64_t in_model = place.stage * place.tp + place.tensor;
    return {group("data", in_model, place.data, place.dp),
            group("tensor", place.data * place.pp + place.stage, place.tensor, place.tp),
            group("model", place.data, in_model, place.pp * place.tp)};
  });
}

}  // namespace trainer

// SPDX-License-Identifier: Apache-2.0
#include "ops/sync_ends.hpp"

#include "ops/local_replica.hpp"
#include "transport/pipe_replica.hpp"
#include "transport/rclone_remote.hpp"
#include "transport/rclone_replica.hpp"
#include "transport/remote_shell.hpp"

#include <ckpt/error.hpp>

#include <cmath>
#include <utility>

namespace ckpt::ops {
namespace {

std::vector<std::string> command_of(const std::string& name, const PeerOptions& peer) {
  const transport::RemotePath remote = transport::parse_remote(name);
  std::vector<std::string> command = peer.rsh;
  if (command.empty()) throw Error(Errc::invalid_argument, "the remote shell has an empty name");
  command.push_back(remote.host);
  command.push_back("ckpt-sync --server -- " + transport::shell_word(remote.path));
  return command;
}

}  // namespace

std::chrono::milliseconds patience_of(const PeerOptions& peer) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(peer.timeout_seconds * 1000)));
}

std::unique_ptr<transport::Replica> open_replica(const std::string& name, const PeerOptions& peer, Monitor& monitor) {
  if (transport::is_rclone(name)) {
    // Without a limit it's rclone's own: it can't be told to wait for ever.
    constexpr std::chrono::milliseconds rclone_default = std::chrono::minutes(5);
    const auto patience = patience_of(peer);
    const transport::RcloneReplica::Options options{.patience = patience.count() > 0 ? patience : rclone_default};
    return std::make_unique<transport::RcloneReplica>(name, options, monitor);
  }
  if (transport::is_remote(name)) {
    const auto child = std::make_shared<transport::ChildProcess>(command_of(name, peer));
    transport::Wire wire(child->take_output(), child->take_input(), name, patience_of(peer), monitor);
    return std::make_unique<transport::PipeReplica>(std::move(wire), child);
  }
  return std::make_unique<LocalReplica>(name, peer.jobs, monitor);
}

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
// A checkpoint on its way to an object store: its containers first, each checked as it passes by and again as the
// remote holds it; the manifest last, which makes it one.
#pragma once

#include "core/md5.hpp"
#include "format/container_stream.hpp"
#include "format/manifest.hpp"
#include "transport/rclone_process.hpp"
#include "transport/rclone_remote.hpp"

#include <ckpt/monitor.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::transport {

/// Not thread-safe. An object store can't append: what was cut off begins anew.
class RcloneUpload {
 public:
  /// `manifest` names the files as they're to be called there. The remote is borrowed.
  RcloneUpload(const RcloneRemote& remote, std::string directory, format::Manifest manifest, Monitor& monitor);

  [[nodiscard]] const format::Manifest& manifest() const { return manifest_; }

  /// How many bytes of each container are there: all, read back and checked, or none.
  [[nodiscard]] std::vector<std::uint64_t> find_held(const ObjectSizes& objects);
  void write(std::uint32_t shard, ByteView bytes);
  /// Every container is there and is what the manifest says, as the remote's own hash or its bytes tell.
  void verify();

 private:
  struct Container {
    format::ContainerStream stream;
    Md5 md5;
  };
  [[nodiscard]] std::string object(std::uint32_t shard) const;
  void begin(std::uint32_t shard);
  void end();
  void read_back(std::uint32_t shard) const;

  const RcloneRemote& remote_;
  std::string directory_;
  format::Manifest manifest_;
  Monitor& monitor_;
  std::optional<std::uint32_t> current_;
  std::optional<Container> container_;
  std::unique_ptr<RcloneProcess> process_;
  std::vector<bool> verified_;
  std::vector<std::string> md5_;  ///< of what was written
};

}  // namespace ckpt::transport

// SPDX-License-Identifier: Apache-2.0
// What an object store holds: its objects, and the checkpoints that their manifests tell of. The manifests' texts lie
// in a temporary directory.
#pragma once

#include "format/manifest.hpp"
#include "os/temporary_directory.hpp"
#include "transport/rclone_remote.hpp"

#include <ckpt/monitor.hpp>

#include <map>
#include <optional>
#include <string>

namespace ckpt::transport {

/// A directory there that has a manifest.
struct RcloneCheckpoint {
  std::string directory;
  bool retired = false;
  /// Nothing if it can't be believed.
  std::optional<format::Manifest> manifest;
  /// Its containers have the sizes that the manifest says; else why not.
  std::string incomplete;

  [[nodiscard]] bool is_sound() const { return manifest && incomplete.empty(); }
};

/// The directory of a checkpoint there.
[[nodiscard]] std::string rclone_directory(const format::BaseCheckpoint& checkpoint, bool retired);

/// Not thread-safe.
class RcloneListing {
 public:
  /// Asks the remote. What can't be used is a warning. The arguments are borrowed.
  RcloneListing(const RcloneRemote& remote, const std::string& scratch, Monitor& monitor);

  /// Asks again what one directory holds.
  void refresh(const std::string& directory);

  [[nodiscard]] bool has_description() const { return has_description_; }
  void note_description() { has_description_ = true; }
  [[nodiscard]] const ObjectSizes& objects() const { return objects_; }
  /// By directory: retired ones, then committed ones by step.
  [[nodiscard]] const std::map<std::string, RcloneCheckpoint>& checkpoints() const { return checkpoints_; }

  /// A sound one with this content: committed, or with `or_retired` also a retired one.
  [[nodiscard]] const RcloneCheckpoint* find(const format::BaseCheckpoint& checkpoint, bool or_retired) const;
  [[nodiscard]] const RcloneCheckpoint* at(const std::string& directory) const;
  [[nodiscard]] std::string manifest_text(const RcloneCheckpoint& checkpoint) const;

 private:
  void take(const ObjectSizes& objects);
  void read_manifest(const std::string& directory);

  const RcloneRemote& remote_;
  Monitor& monitor_;
  os::TemporaryDirectory texts_;
  bool has_description_ = false;
  ObjectSizes objects_;
  std::map<std::string, RcloneCheckpoint> checkpoints_;
};

}  // namespace ckpt::transport

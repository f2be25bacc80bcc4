// SPDX-License-Identifier: Apache-2.0
// What an object store holds: its objects, and the checkpoints that their manifests tell of. All manifests come in one
// run of rclone, by way of a temporary directory.
#pragma once

#include "format/manifest.hpp"
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
  /// The text if it's cut short, as an upload leaves it that was cut off.
  std::optional<std::string> cut_text;
  /// Its containers have the sizes that the manifest says; else why not.
  std::string incomplete;

  [[nodiscard]] bool is_sound() const { return manifest && incomplete.empty(); }
  /// What is left of an upload of this content, or can't be told from it.
  [[nodiscard]] bool is_begun(const Digest& id) const;
};

/// The directory of a checkpoint there.
[[nodiscard]] std::string rclone_directory(const format::BaseCheckpoint& checkpoint, bool retired);

/// Not thread-safe.
class RcloneListing {
 public:
  /// Asks the remote. What can't be used is a warning. The arguments are borrowed.
  RcloneListing(const RcloneRemote& remote, std::string scratch, Monitor& monitor);

  /// Asks again what one directory holds.
  void refresh(const std::string& directory);

  enum class Description { none, cut, whole };
  [[nodiscard]] Description description() const { return description_; }
  void note_description() { description_ = Description::whole; }
  [[nodiscard]] const ObjectSizes& objects() const { return objects_; }
  /// By directory: retired ones, then committed ones by step.
  [[nodiscard]] const std::map<std::string, RcloneCheckpoint>& checkpoints() const { return checkpoints_; }

  /// A sound one with this content: committed, or with `or_retired` also a retired one.
  [[nodiscard]] const RcloneCheckpoint* find(const format::BaseCheckpoint& checkpoint, bool or_retired) const;
  [[nodiscard]] const RcloneCheckpoint* at(const std::string& directory) const;
  /// As it is there now. Throws not_found if it's another by now.
  [[nodiscard]] std::string manifest_text(const RcloneCheckpoint& checkpoint) const;

 private:
  void take(const ObjectSizes& objects);
  void read_description(const std::string& texts);
  void read_manifest(const std::string& directory, const std::string& texts);

  const RcloneRemote& remote_;
  Monitor& monitor_;
  std::string scratch_;
  Description description_ = Description::none;
  ObjectSizes objects_;
  std::map<std::string, RcloneCheckpoint> checkpoints_;
};

}  // namespace ckpt::transport

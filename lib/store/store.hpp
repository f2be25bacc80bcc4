// SPDX-License-Identifier: Apache-2.0
// A store as a directory: opening, making, and reading what is committed in it.
#pragma once

#include "format/manifest.hpp"
#include "store/layout.hpp"

#include <ckpt/address.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::store {

/// A checkpoint that was found: its directory and what its manifest says.
struct Checkpoint {
  std::string directory;
  format::Manifest manifest;
  bool retired = false;

  [[nodiscard]] std::string shard_path(const format::ManifestShard& shard) const {
    return directory + "/" + shard.file;
  }
};

/// Holds nothing open; as cheap as its path. Thread-safe.
class Store {
 public:
  /// Errc::not_found if there's no such directory or it's no store; damaged, unsupported.
  [[nodiscard]] static Store open(const std::string& path);
  /// Also makes what is missing of .pending/ and .pins/. With `create` the store too; a directory that holds other
  /// things is refused with Errc::exists.
  [[nodiscard]] static Store open_for_writing(const std::string& path, bool create);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string sub(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] std::string step_directory(std::uint64_t step) const { return sub(step_name(step)); }
  [[nodiscard]] std::string pending() const { return sub(".pending"); }
  [[nodiscard]] std::string scratch() const { return sub(".pending/tmp"); }
  [[nodiscard]] std::string retired() const { return sub(".retired"); }
  [[nodiscard]] std::string trash() const { return sub(".trash"); }
  [[nodiscard]] std::string pins() const { return sub(".pins"); }
  [[nodiscard]] std::string records() const { return sub(".verify"); }
  [[nodiscard]] std::string address(std::uint64_t step) const { return address_of(path_, step); }

  /// Steps that have a directory, in order.
  [[nodiscard]] std::vector<std::uint64_t> steps() const;
  /// Nothing if the step isn't there; Errc::damaged if it's there and its manifest can't be believed.
  [[nodiscard]] std::optional<Checkpoint> find(std::uint64_t step) const;
  /// Directories of retired checkpoints, in order of their names.
  [[nodiscard]] std::vector<std::string> retired_directories() const;

  /// The checkpoint that a selector names; `none` means the latest. Errc::not_found says what there is instead;
  /// damaged if the one that's asked for is.
  [[nodiscard]] Checkpoint resolve(const Selector& selector) const;
  /// Unmarked checkpoints, newest first, that come before `below`. Those with a damaged manifest are passed over, and
  /// reported to `skipped` if it isn't null.
  struct Skipped {
    std::uint64_t step = 0;
    std::string reason;
  };
  [[nodiscard]] std::vector<std::uint64_t> unmarked(std::vector<Skipped>* skipped) const;

 private:
  explicit Store(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// Reads the manifest in a directory; nothing if there is none. Throws Damaged also if it may not be read: then its
/// system_errno() says so.
[[nodiscard]] std::optional<format::Manifest> read_manifest(const std::string& directory);

}  // namespace ckpt::store

// SPDX-License-Identifier: Apache-2.0
#include "transport/rclone_listing.hpp"

#include "format/constants.hpp"
#include "format/damaged.hpp"
#include "os/small_file.hpp"
#include "os/temporary_directory.hpp"
#include "store/layout.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace ckpt::transport {
namespace {

constexpr std::string_view retired_prefix = ".retired/";
constexpr std::size_t step_digits = 10;

/// As a store names it: ten digits, for a retired one a dash and some plain characters more.
bool is_checkpoint_directory(std::string_view name) {
  const bool retired = name.starts_with(retired_prefix);
  if (retired) name.remove_prefix(retired_prefix.size());
  if (!store::parse_step_name(name.substr(0, step_digits))) return false;
  const std::string_view rest = name.substr(step_digits);
  const auto is_plain = [](char c) { return c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z'); };
  return retired ? rest.starts_with('-') && std::all_of(rest.begin(), rest.end(), is_plain) : rest.empty();
}

/// Directory and file of an object that a checkpoint can have.
std::optional<std::pair<std::string, std::string>> split_name(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  if (slash == std::string::npos) return std::nullopt;
  std::string directory = name.substr(0, slash);
  std::string file = name.substr(slash + 1);
  const bool known = file == store::manifest_file || store::parse_shard_name(file).has_value();
  if (!known || !is_checkpoint_directory(directory)) return std::nullopt;
  return std::pair(std::move(directory), std::move(file));
}

}  // namespace

bool RcloneCheckpoint::is_begun(const Digest& id) const {
  constexpr std::string_view key = "\"id\": \"";
  if (!cut_text) return false;
  const std::string hex = to_hex(id);
  const std::size_t at = cut_text->find(key);
  // It may be cut within the id.
  return at == std::string::npos || hex.starts_with(cut_text->substr(at + key.size(), hex.size()));
}

std::string rclone_directory(const format::BaseCheckpoint& checkpoint, bool retired) {
  const std::string step = store::step_name(checkpoint.step);
  return retired ? std::string(retired_prefix) + step + "-" + to_hex(checkpoint.id).substr(0, 8) : step;
}

RcloneListing::RcloneListing(const RcloneRemote& remote, std::string scratch, Monitor& monitor)
    : remote_(remote), monitor_(monitor), scratch_(std::move(scratch)) {
  take(remote_.list());
}

void RcloneListing::refresh(const std::string& directory) {
  const std::string prefix = directory + "/";
  std::erase_if(objects_, [&](const auto& object) { return object.first.starts_with(prefix); });
  checkpoints_.erase(directory);
  ObjectSizes objects;
  for (const auto& [file, size] : remote_.list(directory)) objects.emplace(prefix + file, size);
  take(objects);
}

void RcloneListing::take(const ObjectSizes& objects) {
  std::vector<std::string> wanted;
  std::vector<std::string> directories;
  std::uint64_t bytes = 0;
  const auto want = [&](const std::string& name, std::uint64_t size) {
    if (size > format::max_manifest_size) return;
    wanted.push_back(name);
    bytes += size;
  };
  for (const auto& [name, size] : objects) {
    if (name == store::description_file) {
      want(name, size);
      continue;
    }
    const auto parts = split_name(name);
    if (!parts) continue;
    objects_[name] = size;
    if (parts->second != store::manifest_file) continue;
    want(name, size);
    directories.push_back(parts->first);
  }
  if (wanted.empty()) return;
  const os::TemporaryDirectory texts(scratch_);
  remote_.fetch(wanted, texts.path(), bytes);
  if (objects.contains(store::description_file)) read_description(texts.path());
  for (const std::string& directory : directories) read_manifest(directory, texts.path());
}

void RcloneListing::read_description(const std::string& texts) {
  const std::string name = remote_.address(store::description_file);
  const auto text = os::read_small_file(texts + "/" + store::description_file, format::max_manifest_size);
  if (!text) throw Error(Errc::busy, "'" + name + "' went away meanwhile");
  try {
    format::check_store_description(*text, name, false);
    description_ = Description::whole;
  } catch (const format::Damaged& damage) {
    if (damage.kind() != DamageKind::truncated) throw;
    description_ = Description::cut;
  }
}

void RcloneListing::read_manifest(const std::string& directory, const std::string& texts) {
  const std::string name = directory + "/" + store::manifest_file;
  RcloneCheckpoint found{.directory = directory,
                         .retired = directory.starts_with(retired_prefix),
                         .manifest = {},
                         .cut_text = {},
                         .incomplete = {}};
  std::optional<std::string> text;
  try {
    text = os::read_small_file(texts + "/" + name, format::max_manifest_size);
    if (!text) {
      // Removed since the listing, or larger than any manifest is.
      monitor_.warning("'" + remote_.address(name) + "' couldn't be fetched");
    } else {
      found.manifest = format::decode_manifest(*text, remote_.address(name));
    }
  } catch (const format::Damaged& damage) {
    if (text && damage.kind() == DamageKind::truncated) found.cut_text = *text;
    monitor_.warning(damage.what());
  }
  if (found.manifest) {
    const std::string step = store::step_name(found.manifest->step);
    const bool is_own = directory == step || directory.starts_with(std::string(retired_prefix) + step);
    if (!is_own) found.incomplete = "its manifest is of another step";
    for (const format::ManifestShard& shard : found.manifest->shards) {
      const auto object = objects_.find(directory + "/" + shard.file);
      if (object == objects_.end()) {
        found.incomplete = "'" + shard.file + "' is missing";
      } else if (object->second != shard.size) {
        found.incomplete = "'" + shard.file + "' has " + std::to_string(object->second) + " bytes and should have " +
                           std::to_string(shard.size);
      }
    }
    if (!found.incomplete.empty())
      monitor_.warning("'" + remote_.address(directory) + "' is damaged: " + found.incomplete);
  }
  checkpoints_.insert_or_assign(directory, std::move(found));
}

const RcloneCheckpoint* RcloneListing::find(const format::BaseCheckpoint& checkpoint, bool or_retired) const {
  const RcloneCheckpoint* found = at(store::step_name(checkpoint.step));
  if (found != nullptr && found->is_sound() && found->manifest->identity() == checkpoint) return found;
  if (!or_retired) return nullptr;
  for (const auto& [directory, entry] : checkpoints_) {
    if (entry.retired && entry.is_sound() && entry.manifest->identity() == checkpoint) return &entry;
  }
  return nullptr;
}

const RcloneCheckpoint* RcloneListing::at(const std::string& directory) const {
  const auto found = checkpoints_.find(directory);
  return found == checkpoints_.end() ? nullptr : &found->second;
}

std::string RcloneListing::manifest_text(const RcloneCheckpoint& checkpoint) const {
  const std::string name = checkpoint.directory + "/" + store::manifest_file;
  const Bytes bytes = remote_.read(name, 0, objects_.at(name));
  std::string text(as_text(bytes));
  if (format::decode_manifest(text, remote_.address(name)).identity() != checkpoint.manifest->identity())
    throw Error(Errc::not_found, "'" + remote_.address(name) + "' has other content by now");
  return text;
}

}  // namespace ckpt::transport

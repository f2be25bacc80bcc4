// SPDX-License-Identifier: Apache-2.0
// Listings that need manifests and catalogs only: no block is read.
#include <ckpt/list.hpp>

#include "format/container_reader.hpp"
#include "format/damaged.hpp"
#include "ops/open_shard.hpp"
#include "os/fd.hpp"
#include "os/small_file.hpp"
#include "store/store.hpp"
#include "store/verify_records.hpp"

#include <ckpt/error.hpp>

#include <sys/stat.h>
#include <algorithm>
#include <cerrno>
#include <utility>

namespace ckpt {
namespace {

CheckpointInfo describe(const store::Checkpoint& checkpoint, const store::Verdicts& verdicts) {
  const format::Manifest& manifest = checkpoint.manifest;
  CheckpointInfo info;
  info.step = manifest.step;
  info.id = to_hex(manifest.id);
  info.attempt = manifest.attempt;
  info.world_size = manifest.world_size;
  info.shards = manifest.shards.size();
  for (const format::ManifestShard& shard : manifest.shards) {
    info.files += shard.files;
    info.tensors += shard.tensors;
    info.raw_bytes += shard.raw_bytes;
  }
  info.stored_bytes = manifest.stored_bytes();
  info.created = manifest.created;
  info.meta = manifest.meta;
  info.marks = manifest.marks;
  info.retired = checkpoint.retired;
  const auto verdict = store::verdict_of(verdicts, manifest.step, manifest.id);
  info.state = !verdict ? "durable" : *verdict == store::Verdict::good ? "verified" : "damaged";
  if (info.state == "damaged") info.state_detail = "ckpt-verify found damage";
  return info;
}

bool is_no_access(const format::Damaged& damage) {
  return damage.system_errno() == EACCES || damage.system_errno() == EPERM;
}

CheckpointInfo describe_damaged(std::uint64_t step, const format::Damaged& damage) {
  CheckpointInfo info;
  info.step = step;
  info.state = is_no_access(damage) ? "unreadable" : "damaged";
  info.state_detail = damage.what();
  return info;
}

/// True only where a store could be made: nothing is there, or an empty directory. Anything else without a description
/// is trouble, and no reason to start from zero.
bool is_nothing(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) {
    if (errno == ENOENT) return true;
    os::throw_errno(errno, "cannot stat '" + path + "'");
  }
  const auto names = os::list_directory(path);
  return names && names->empty();
}

template <class Visit>
void for_each_container(const store::Checkpoint& checkpoint, Visit visit) {
  for (const format::ManifestShard& shard : checkpoint.manifest.shards) {
    visit(*ops::open_shard(checkpoint, shard.rank));
  }
}

}  // namespace

std::vector<CheckpointInfo> list_checkpoints(const std::string& path) {
  const store::Store store = store::Store::open(path);
  const store::Verdicts verdicts = store::read_verdicts(store);
  std::vector<CheckpointInfo> infos;
  for (const std::uint64_t step : store.steps()) {
    try {
      const auto checkpoint = store.find(step);
      if (checkpoint) infos.push_back(describe(*checkpoint, verdicts));
    } catch (const format::Damaged& damage) {
      infos.push_back(describe_damaged(step, damage));
    }
  }
  return infos;
}

std::vector<CheckpointInfo> list_retired(const std::string& path) {
  const store::Store store = store::Store::open(path);
  std::vector<CheckpointInfo> infos;
  for (const std::string& directory : store.retired_directories()) {
    try {
      auto manifest = store::read_manifest(directory);
      if (manifest)
        infos.push_back(describe({.directory = directory, .manifest = std::move(*manifest), .retired = true}, {}));
    } catch (const format::Damaged& damage) {
      const std::string name(os::last_name_of(directory));
      infos.push_back(describe_damaged(store::parse_step_name(name.substr(0, 10)).value_or(0), damage));
      infos.back().retired = true;
    }
  }
  return infos;
}

CheckpointInfo find_checkpoint(const Address& address) {
  const store::Store store = store::Store::open(address.store);
  return describe(store.resolve(address.selector), store::read_verdicts(store));
}

std::vector<FileInfo> list_files(const Address& address) {
  const store::Store store = store::Store::open(address.store);
  std::vector<FileInfo> infos;
  for_each_container(store.resolve(address.selector), [&](const format::ContainerReader& container) {
    for (const format::FileEntry& file : container.catalog().files) {
      infos.push_back({.rank = container.catalog().shard.rank,
                       .path = file.path,
                       .type = std::string(name_of(file.type)),
                       .kind = std::string(name_of(file.kind)),
                       .target = file.target,
                       .mode = file.mode,
                       .size = file.size,
                       .mtime_ns = file.mtime_ns,
                       .tensors = file.tensor_count,
                       .note = file.note});
    }
  });
  return infos;
}

bool has_good_checkpoint(const Address& address) {
  if (is_nothing(address.store)) return false;
  const store::Store store = store::Store::open(address.store);
  const store::Verdicts verdicts = store::read_verdicts(store);
  std::string damage;
  std::string hint = "ckpt-verify --repair may mend it";
  const auto is_good = [&](const store::Checkpoint& checkpoint) {
    if (checkpoint.manifest.is_marked()) return false;
    const auto verdict = store::verdict_of(verdicts, checkpoint.manifest.step, checkpoint.manifest.id);
    if (verdict != store::Verdict::damaged) return true;
    damage = "ckpt-verify found damage in '" + store.address(checkpoint.manifest.step) + "'";
    return false;
  };
  if (address.selector.kind != Selector::Kind::none) {
    try {
      return is_good(store.resolve(address.selector));
    } catch (const Error& error) {
      if (error.code() == Errc::not_found) return false;
      throw;
    }
  }
  std::vector<std::uint64_t> steps = store.steps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      const auto checkpoint = store.find(*step);
      if (checkpoint && is_good(*checkpoint)) return true;
    } catch (const format::Damaged& found) {
      damage = found.what();
      if (is_no_access(found)) hint = "ask as a user who may read it";
    }
  }
  if (damage.empty()) return false;
  // "None yet" would make a script start from zero beside a checkpoint that can perhaps be mended.
  throw Error(Errc::damaged, "no good checkpoint is left: " + damage).with_hint(hint);
}

}  // namespace ckpt

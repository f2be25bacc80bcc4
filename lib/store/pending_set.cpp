// SPDX-License-Identifier: Apache-2.0
#include "store/pending_set.hpp"

#include "format/container_reader.hpp"
#include "format/damaged.hpp"
#include "os/fd.hpp"
#include "os/small_file.hpp"
#include "store/attempts.hpp"
#include "store/bases.hpp"
#include "store/skipping.hpp"
#include "store/swap.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace ckpt::store {
namespace {

/// A set's directory can be renamed away by a commit at any moment; then everything is looked at again, so often.
constexpr int patience = 100;

std::string set_directory(const Store& store, const SetKey& key) { return store.pending() + "/" + set_name(key); }

Digest root_of(const std::string& path) { return format::read_container_summary(path).root; }

[[noreturn]] void refuse_other_content(const Store& store, const SetKey& set, std::uint32_t rank) {
  throw Error(Errc::exists, "'" + store.address(set.step) + "' holds other content of rank " + std::to_string(rank))
      .with_hint("use --replace to put the new content in its place, or another step");
}

/// What is published of one rank in a set: the newest version's number and path.
struct Newest {
  std::uint32_t version = 0;
  std::string path;
};
std::optional<Newest> newest_version(const std::string& directory, std::uint32_t rank, std::uint32_t world_size) {
  std::optional<Newest> newest;
  for (const std::string& name : os::list_directory(directory).value_or(std::vector<std::string>{})) {
    const auto shard = parse_shard_name(name);
    if (!shard || shard->rank != rank || shard->world_size != world_size) continue;
    if (!newest || shard->version >= newest->version)
      newest = {.version = shard->version, .path = directory + "/" + name};
  }
  return newest;
}

/// "The same content is there already" mustn't be said of a container that is gone or can't be read.
void require_sound(const Store& store, const Checkpoint& committed, std::uint32_t rank) {
  const format::ManifestShard& shard = committed.manifest.shards[rank];
  std::string why;
  try {
    const format::ContainerSummary container = format::read_container_summary(committed.shard_path(shard));
    if (container.digest == shard.digest) return;
    why = "it is another container than the manifest names";
  } catch (const Error& error) {
    if (error.code() != Errc::damaged && error.code() != Errc::not_found) throw;
    why = error.what();
  }
  // A repair may have given the shard a new name in this moment.
  const auto now = store.find(committed.manifest.step);
  if (now && now->manifest.shards.size() > rank && now->manifest.shards[rank].file != shard.file) return;
  throw Error(Errc::damaged, "'" + store.address(committed.manifest.step) + "' holds this content, damaged: " + why)
      .with_hint("ckpt-verify --repair may mend it; --replace writes it anew");
}

/// Compares with what is committed at the step, if anything is.
std::optional<Published> compare_with_committed(const Store& store, const PublishRequest& request) {
  // A set that replaces is a set like any other: it needs the shards of all ranks, also of those that stay the same.
  if (request.replace) return std::nullopt;
  const auto committed = store.find(request.set.step);
  if (!committed) return std::nullopt;
  const format::Manifest& manifest = committed->manifest;
  const bool same = manifest.world_size == request.set.world_size && manifest.shards[request.rank].root == request.root;
  if (!same) refuse_other_content(store, request.set, request.rank);
  require_sound(store, *committed, request.rank);
  // A writer that died may have renamed the set and not synced the directory.
  os::sync_directory(committed->directory);
  os::sync_directory(store.path());
  return Published::committed;
}

/// What is committed can be restored: so what it's stored against must be there.
void require_bases(const Store& store, const SetKey& key, const format::Manifest& manifest) {
  for (const format::BaseCheckpoint& base : manifest.bases) {
    if (find_base(store.path(), base)) continue;
    throw format::Damaged(DamageKind::missing, 0, 0,
                          "'" + store.address(key.step) + "' can't be committed: it's stored against step " +
                              std::to_string(base.step) + ", which is gone");
  }
}

format::Manifest describe(const Store& store, const SetContent& set, const std::string& directory,
                          const CommitRequest& request) {
  format::Manifest manifest{.id = {},
                            .step = set.key.step,
                            .attempt = set.key.attempt,
                            .world_size = set.key.world_size,
                            .shards = {},
                            .created = std::nullopt,
                            .meta = {},
                            .marks = {},
                            .timings = request.timings};
  std::vector<Digest> roots;
  for (const auto& [rank, name] : set.files) {
    const format::ContainerSummary container = format::read_container_summary(directory + "/" + name);
    format::require_known(container.footer.major, container.footer.flags, true, directory + "/" + name);
    const format::ShardInfo& shard = container.catalog.shard;
    if (shard.step != set.key.step || shard.rank != rank || shard.world_size != set.key.world_size ||
        shard.attempt != set.key.attempt) {
      throw format::Damaged(DamageKind::altered, 0, 0, "'" + directory + "/" + name + "' is a shard of another set");
    }
    manifest.shards.push_back({.rank = rank,
                               .file = name,
                               .size = container.footer.file_size,
                               .root = container.root,
                               .digest = container.digest,
                               .files = container.catalog.files,
                               .tensors = container.catalog.tensors,
                               .raw_bytes = container.catalog.raw_bytes});
    roots.push_back(container.root);
    // Lower ranks win where two say different things; the newest shard dates the checkpoint.
    manifest.meta.insert(shard.meta.begin(), shard.meta.end());
    if (shard.created) manifest.created = std::max(manifest.created.value_or(*shard.created), *shard.created);
    manifest.marks.insert(shard.marks.begin(), shard.marks.end());
    for (const format::BaseCheckpoint& base : container.bases) (void)format::row_of(manifest.bases, base);
  }
  manifest.id = format::checkpoint_id(roots);
  require_bases(store, set.key, manifest);
  return manifest;
}

std::string replace_marker(const Store& store, const SetKey& key) {
  return set_directory(store, key) + std::string(replace_suffix);
}

/// Before the first shard is published: so a dead writer's set is either marked, or has nothing to replace.
void mark_as_replacing(const Store& store, const SetKey& key) {
  const std::string path = replace_marker(store, key);
  if (os::exists(path)) return;
  os::open(path, O_WRONLY | O_CREAT, 0666).close(path);
  os::sync_directory(store.pending());
}

/// True if all that is there of a set is in the committed checkpoint.
bool holds_all(const Checkpoint& committed, const SetContent& set, const std::string& directory) {
  if (committed.manifest.world_size != set.key.world_size) return false;
  return std::all_of(set.files.begin(), set.files.end(), [&](const auto& file) {
    try {
      return committed.manifest.shards[file.first].root == root_of(directory + "/" + file.second);
    } catch (const Error& error) {
      if (error.code() != Errc::damaged && error.code() != Errc::not_found) throw;
      return false;
    }
  });
}

/// Drops a set that isn't needed any more: its content is committed. What was published since it was looked at stays.
void drop_set(const Store& store, const SetContent& done) {
  const std::string directory = set_directory(store, done.key);
  ::unlink((directory + "/" + manifest_file).c_str());
  for (const std::string& name : os::list_directory(directory).value_or(std::vector<std::string>{})) {
    const auto shard = parse_shard_name(name);
    const auto known = shard ? done.files.find(shard->rank) : done.files.end();
    if (known == done.files.end()) continue;
    if (shard->version <= parse_shard_name(known->second)->version) ::unlink((directory + "/" + name).c_str());
  }
  if (::rmdir(directory.c_str()) != 0) return;
  ::unlink(replace_marker(store, done.key).c_str());
  forget_decision(store, done.key);
}

}  // namespace

Published publish_shard(const Store& store, const PublishRequest& request) {
  const std::string directory = set_directory(store, request.set);
  for (int i = 0; i < patience; ++i) {
    require_not_superseded(store, request.set.attempt);
    if (const auto answer = compare_with_committed(store, request)) return *answer;
    os::make_directory(directory);
    if (request.replace) mark_as_replacing(store, request.set);
    const auto newest = newest_version(directory, request.rank, request.set.world_size);
    std::uint32_t version = 0;
    if (newest) {
      try {
        if (root_of(newest->path) == request.root) {
          os::sync_directory(directory);  // its writer may have died before it did
          return Published::in_set;
        }
      } catch (const format::Damaged& damage) {
        // What can't be read can't be committed either: a good shard takes its place.
        version = newest->version + 1;
      } catch (const Error& error) {
        if (error.code() == Errc::not_found) continue;  // committed by another in this moment
        throw;
      }
      if (version == 0) {
        if (!request.replace) refuse_other_content(store, request.set, request.rank);
        version = newest->version + 1;
      }
    }
    const std::string path =
        directory + "/" + shard_name({.rank = request.rank, .world_size = request.set.world_size, .version = version});
    if (::link(request.temporary.c_str(), path.c_str()) == 0) {
      // Again: a cleaner may have met the mark before there was a set to it.
      if (request.replace) mark_as_replacing(store, request.set);
      // A commit may have renamed the directory between the link and here; then that commit has synced it.
      try {
        os::sync_directory(directory);
      } catch (const Error& error) {
        if (error.code() != Errc::not_found) throw;
      }
      return Published::linked;
    }
    if (errno != EEXIST && errno != ENOENT) os::throw_errno(errno, "cannot link '" + path + "'");
  }
  throw Error(Errc::busy, "'" + directory + "' keeps changing");
}

SetContent pending_set(const Store& store, const SetKey& key) {
  SetContent content{.key = key, .files = {}};
  std::map<std::uint32_t, std::uint32_t> versions;
  for (const std::string& name : os::list_directory(set_directory(store, key)).value_or(std::vector<std::string>{})) {
    const auto shard = parse_shard_name(name);
    if (!shard || shard->world_size != key.world_size) continue;
    const auto [known, is_new] = versions.emplace(shard->rank, shard->version);
    if (!is_new && known->second > shard->version) continue;
    known->second = shard->version;
    content.files[shard->rank] = name;
  }
  return content;
}

std::vector<SetContent> pending_sets(const Store& store) {
  std::vector<SetContent> sets;
  for (const std::string& name : os::list_directory(store.pending()).value_or(std::vector<std::string>{})) {
    const auto key = parse_set_name(name);
    if (key) sets.push_back(pending_set(store, *key));
  }
  return sets;
}

std::optional<Checkpoint> commit_if_complete(const Store& store, const CommitRequest& request) {
  const std::string directory = set_directory(store, request.set);
  for (int i = 0; i < patience; ++i) {
    const SetContent set = pending_set(store, request.set);
    const bool replaces = os::exists(replace_marker(store, request.set));
    auto committed = replaces ? find_to_replace(store, request.set.step) : store.find(request.set.step);
    if (!set.complete()) {
      // Gone because another has committed it, or retired with its attempt, or never complete.
      require_not_superseded(store, request.set.attempt);
      if (!committed || committed->manifest.shards.empty()) return std::nullopt;
      if (!set.files.empty() && (replaces || !holds_all(*committed, set, directory))) return std::nullopt;
      drop_set(store, set);  // what came late, and is in the checkpoint already
      return committed;
    }
    require_not_superseded(store, request.set.attempt);
    try {
      if (committed) {
        const format::Manifest manifest = describe(store, set, directory, request);
        if (replaces || committed->manifest.id != manifest.id) {
          if (!replaces) {
            throw Error(Errc::exists, "'" + store.address(request.set.step) + "' is committed with other content")
                .with_hint("use --replace to put the new content in its place, or another step");
          }
          committed = replace_checkpoint(store, *committed, directory, manifest);
        }
        drop_set(store, set);
        return committed;
      }
      // The first manifest stays, whoever writes it. A shard that was published anew since then isn't in it; its writer
      // sees that in what is committed.
      const std::string manifest_path = directory + "/" + manifest_file;
      if (!os::exists(manifest_path)) {
        const format::Manifest manifest = describe(store, set, directory, request);
        os::publish_small_file(manifest_path, format::encode_manifest(manifest), os::Publish::first_wins,
                               store.scratch());
      }
      os::sync_directory(directory);  // also of a manifest that a dead writer linked and didn't sync
    } catch (const Error& error) {
      if (error.code() == Errc::not_found) continue;  // committed by another in this moment
      throw;
    }
    // The attempt may have been superseded while the shards were being read.
    require_not_superseded(store, request.set.attempt);
    const std::string target = store.step_directory(request.set.step);
    if (::rename(directory.c_str(), target.c_str()) == 0 || errno == ENOENT) {
      os::sync_directory(store.path());
      ::unlink(replace_marker(store, request.set).c_str());
      forget_decision(store, request.set);
      os::sync_directory(store.pending());
      committed = store.find(request.set.step);
      if (committed) return committed;
      continue;
    }
    if (errno != EEXIST && errno != ENOTEMPTY)
      os::throw_errno(errno, "cannot rename '" + directory + "' to '" + target + "'");
  }
  throw Error(Errc::busy, "'" + directory + "' keeps changing");
}

void help_complete_sets(const Store& store) {
  for (const SetContent& set : pending_sets(store)) {
    if (!set.complete()) continue;
    try {
      (void)commit_if_complete(store, {.set = set.key, .timings = {}});
    } catch (const Error&) {
      continue;  // superseded, in conflict, damaged: for ckpt-ls and ckpt-verify to tell, not for another save to die
                 // of
    }
  }
}

}  // namespace ckpt::store

// SPDX-License-Identifier: Apache-2.0
#include "ops/standalone_form.hpp"

#include "format/damaged.hpp"
#include "ops/open_shard.hpp"
#include "ops/reencode.hpp"
#include "ops/shard_reencoder.hpp"
#include "ops/stdin_spool.hpp"
#include "store/bases.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <cerrno>

namespace ckpt::ops {
namespace {

/// True for what only says that nothing can be written there.
bool is_read_only(const Error& error) {
  return error.system_errno() == EROFS || error.system_errno() == EACCES || error.system_errno() == EPERM;
}

}  // namespace

void StandaloneForm::read(const std::string& file, std::uint64_t offset, std::span<std::byte> into) const {
  for (const format::ManifestShard& shard : manifest.shards) {
    if (shard.file != file) continue;
    if (os::read_at(files.at(shard.rank), offset, into, file) == into.size()) return;
    throw format::Damaged(DamageKind::truncated, offset, offset + into.size(), "'" + file + "' ends early");
  }
  throw Error(Errc::not_found, "there is no shard '" + file + "'");
}

std::optional<StandaloneForm> make_standalone(const store::Checkpoint& checkpoint,
                                              const std::vector<format::BaseCheckpoint>& without, std::uint64_t most,
                                              unsigned jobs, Monitor& monitor) {
  const store::Store store = store::Store::open(store::store_path_of(checkpoint));
  const ReencodePlan plan{
      .base = base_beyond(store, checkpoint, without), .avoid = without, .only_where_needed = true, .settings = {}};
  if (estimate_reencode(checkpoint, plan, jobs, monitor) > most) return std::nullopt;
  StandaloneForm form{.manifest = checkpoint.manifest, .files = {}};
  form.manifest.bases.clear();
  try {
    for (format::ManifestShard& shard : form.manifest.shards) {
      ShardReencoder reencoder(open_shard(checkpoint, shard.rank), checkpoint.manifest.identity(), plan, nullptr,
                               monitor);
      auto finished = reencoder.write(open_nameless(store.path()), "another form of '" + shard.file + "'", jobs);
      shard.size = finished.size;
      shard.digest = finished.digest;
      for (const format::BaseCheckpoint& base : reencoder.bases_in(finished.index))
        (void)format::row_of(form.manifest.bases, base);
      form.files.push_back(std::move(finished.file));
    }
  } catch (const Error& error) {
    if (!is_read_only(error)) throw;
    return std::nullopt;
  }
  if (form.manifest.stored_bytes() > most) return std::nullopt;
  return form;
}

}  // namespace ckpt::ops

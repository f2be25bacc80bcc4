// SPDX-License-Identifier: Apache-2.0
#include "ops/other_form.hpp"

#include "format/damaged.hpp"
#include "ops/open_shard.hpp"
#include "ops/reencode.hpp"
#include "ops/shard_reencoder.hpp"
#include "ops/stdin_spool.hpp"
#include "store/bases.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <cerrno>
#include <set>

namespace ckpt::ops {
namespace {

/// True for what only says that nothing can be written there.
bool is_read_only(const Error& error) {
  return error.system_errno() == EROFS || error.system_errno() == EACCES || error.system_errno() == EPERM;
}

store::Checkpoint require(const store::Store& store, const format::BaseCheckpoint& wanted) {
  auto found = store::find_base(store.path(), wanted);
  if (!found) throw Error(Errc::not_found, "'" + store.address(wanted.step) + "' is gone, or has other content");
  return std::move(*found);
}

bool depends_on(const store::Store& store, const store::Checkpoint& checkpoint, const format::BaseCheckpoint& other) {
  std::vector<format::BaseCheckpoint> open = checkpoint.manifest.bases;
  std::set<format::BaseCheckpoint> seen;
  while (!open.empty()) {
    const format::BaseCheckpoint next = open.back();
    open.pop_back();
    if (next == other) return true;
    if (!seen.insert(next).second) continue;
    if (const auto found = store::find_base(store.path(), next))
      open.insert(open.end(), found->manifest.bases.begin(), found->manifest.bases.end());
  }
  return false;
}

/// Lossy ones are never such a base; and one that is itself stored against the checkpoint would lead back to it.
bool can_be_base(const store::Store& store, const store::Checkpoint& base, const format::BaseCheckpoint& of) {
  return !base.manifest.is_marked() && !depends_on(store, base, of);
}

}  // namespace

void OtherForm::read(const std::string& file, std::uint64_t offset, std::span<std::byte> into) const {
  for (const format::ManifestShard& shard : manifest.shards) {
    if (shard.file != file) continue;
    if (os::read_at(files.at(shard.rank), offset, into, file) == into.size()) return;
    throw format::Damaged(DamageKind::truncated, offset, offset + into.size(), "'" + file + "' ends early");
  }
  throw Error(Errc::not_found, "there is no shard '" + file + "'");
}

std::optional<OtherForm> make_other_form(const std::string& store_path, const transport::FormRequest& request,
                                         unsigned jobs, Monitor& monitor) {
  const store::Store store = store::Store::open(store_path);
  const store::Checkpoint checkpoint = require(store, request.checkpoint);
  const ReencodePlan plan{
      .base = request.against ? require(store, *request.against) : base_beyond(store, checkpoint, request.without),
      .avoid = request.without,
      .only_where_needed = !request.against,
      .settings = {}};
  if (request.against && !can_be_base(store, *plan.base, request.checkpoint)) return std::nullopt;
  if (estimate_reencode(checkpoint, plan, jobs, monitor) > request.most) return std::nullopt;
  OtherForm form{.manifest = checkpoint.manifest, .files = {}};
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
  if (form.manifest.stored_bytes() > request.most) return std::nullopt;
  return form;
}

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
#include "transport/rclone_upload.hpp"

#include "core/stop.hpp"
#include "format/damaged.hpp"
#include "transport/wire.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <utility>

namespace ckpt::transport {

RcloneUpload::RcloneUpload(const RcloneRemote& remote, std::string directory, format::Manifest manifest,
                           Monitor& monitor)
    : remote_(remote),
      directory_(std::move(directory)),
      manifest_(std::move(manifest)),
      monitor_(monitor),
      verified_(manifest_.shards.size()),
      md5_(manifest_.shards.size()) {}

std::string RcloneUpload::object(std::uint32_t shard) const { return directory_ + "/" + manifest_.shards[shard].file; }

std::vector<std::uint64_t> RcloneUpload::find_held(const ObjectSizes& objects) {
  std::vector<std::uint64_t> held(manifest_.shards.size());
  for (std::uint32_t shard = 0; shard < held.size(); ++shard) {
    const auto found = objects.find(object(shard));
    if (found == objects.end() || found->second != manifest_.shards[shard].size) continue;
    try {
      read_back(shard);
      verified_[shard] = true;
      held[shard] = found->second;
    } catch (const Error& error) {
      if (error.code() != Errc::damaged && error.code() != Errc::not_found) throw;
      monitor_.note(std::string(error.what()) + "; it's sent anew");
    }
  }
  return held;
}

void RcloneUpload::read_back(std::uint32_t shard) const {
  const format::ManifestShard& named = manifest_.shards[shard];
  format::ContainerStream stream(named.size, named.digest, remote_.address(object(shard)));
  const auto process = remote_.open(object(shard), 0);
  Bytes piece(max_piece);
  while (true) {
    require_no_stop(monitor_);
    const std::size_t got = process->read(piece);
    stream.update(ByteView(piece).first(got));
    if (got < piece.size()) break;
  }
  process->finish();
  stream.finish();
}

void RcloneUpload::begin(std::uint32_t shard) {
  if (shard >= manifest_.shards.size())
    throw Error(Errc::malformed, "bytes came for a shard that the checkpoint hasn't got");
  end();
  const format::ManifestShard& named = manifest_.shards[shard];
  container_.emplace(
      Container{.stream = format::ContainerStream(named.size, named.digest, "what came as " + named.file), .md5 = {}});
  verified_[shard] = false;
  process_ = remote_.create(object(shard), named.size);
  current_ = shard;
}

void RcloneUpload::write(std::uint32_t shard, ByteView bytes) {
  if (current_ != shard) begin(shard);
  container_->stream.update(bytes);
  container_->md5.update(bytes);
  process_->write(bytes);
}

void RcloneUpload::end() {
  if (!current_) return;
  const std::uint32_t shard = *std::exchange(current_, std::nullopt);
  const auto process = std::move(process_);
  container_->stream.finish();
  process->finish();
  md5_[shard] = container_->md5.hex();
  container_.reset();
}

void RcloneUpload::verify() {
  end();
  std::vector<std::string> files;
  std::uint64_t bytes = 0;
  for (std::uint32_t shard = 0; shard < verified_.size(); ++shard) {
    if (verified_[shard]) continue;
    if (md5_[shard].empty()) throw Error(Errc::malformed, "nothing came of '" + manifest_.shards[shard].file + "'");
    files.push_back(manifest_.shards[shard].file);
    bytes += manifest_.shards[shard].size;
  }
  if (files.empty()) return;
  const auto sums = remote_.md5_sums(directory_, files, bytes);
  for (std::uint32_t shard = 0; shard < verified_.size(); ++shard) {
    if (verified_[shard]) continue;
    const auto told = sums.find(manifest_.shards[shard].file);
    if (told == sums.end()) {
      read_back(shard);
    } else if (told->second != md5_[shard]) {
      throw format::Damaged(DamageKind::altered, 0, 0,
                            "'" + remote_.address(object(shard)) + "' isn't what was written to it");
    }
    verified_[shard] = true;
  }
}

}  // namespace ckpt::transport

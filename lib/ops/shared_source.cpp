// SPDX-License-Identifier: Apache-2.0
#include "ops/shared_source.hpp"

namespace ckpt::ops {

transport::Inventory SharedSource::inventory() {
  const std::lock_guard lock(mutex_);
  return replica_->inventory();
}

std::string SharedSource::manifest(const format::BaseCheckpoint& checkpoint, bool retired) {
  const std::lock_guard lock(mutex_);
  return replica_->manifest(checkpoint, retired);
}

std::optional<std::string> SharedSource::other_form(const transport::FormRequest& request) {
  const std::lock_guard lock(mutex_);
  if (form_ && form_->request == request) return form_->manifest;
  std::erase_if(pieces_, [](const Piece& piece) { return piece.file.other_form; });
  form_.reset();
  auto manifest = replica_->other_form(request);
  if (manifest) form_ = {.request = request, .manifest = *manifest};
  return manifest;
}

std::shared_ptr<const Bytes> SharedSource::read(const transport::FileName& file, std::uint64_t offset,
                                                std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  for (auto piece = pieces_.rbegin(); piece != pieces_.rend(); ++piece) {
    if (piece->offset == offset && piece->bytes->size() == size && piece->file == file) return piece->bytes;
  }
  auto bytes = std::make_shared<Bytes>(size);
  replica_->read(file, offset, *bytes);
  if (limit_ > 0) pieces_.push_back({.file = file, .offset = offset, .bytes = bytes});
  if (pieces_.size() > limit_) pieces_.pop_front();
  return bytes;
}

}  // namespace ckpt::ops

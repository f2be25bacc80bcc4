// SPDX-License-Identifier: Apache-2.0
#include "capture/captured_file.hpp"

#include "core/crc32.hpp"
#include "source/parse.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace ckpt::capture {

CapturedFile::CapturedFile(std::vector<source::ArchiveSegment> segments, std::vector<FileContent> contents,
                           std::shared_ptr<FrozenMemory> memory, Placements placements)
    : segments_(std::move(segments)), memory_(std::move(memory)), placements_(std::move(placements)) {
  for (const FileContent& what : contents) {
    contents_.push_back(std::make_unique<Content>());
    contents_.back()->what = what;
  }
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const auto add = [&](std::uint64_t size, bool is_content) {
      if (size > 0) pieces_.push_back({.begin = size_, .size = size, .segment = i, .is_content = is_content});
      size_ += size;
    };
    add(segments_[i].literal.size(), false);
    if (segments_[i].content) add(contents.at(*segments_[i].content).size, true);
  }
}

/// visit(piece, where in it, the part of `into`).
template <class Visit>
void CapturedFile::for_each_piece(std::uint64_t offset, std::span<std::byte> into, Visit visit) const {
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                [](std::uint64_t at, const Piece& other) { return at < other.begin + other.size; });
  while (!into.empty()) {
    const std::uint64_t at = offset - piece->begin;
    const std::size_t count = std::min<std::uint64_t>(piece->size - at, into.size());
    visit(*piece, at, into.first(count));
    into = into.subspan(count);
    offset += count;
    ++piece;
  }
}

CapturedFile::Content& CapturedFile::content_of(const Piece& piece) const {
  return *contents_[*segments_[piece.segment].content];
}

void CapturedFile::copy_literal(const Piece& piece, std::uint64_t at, std::span<std::byte> into,
                                bool with_checksums) const {
  const source::ArchiveSegment& segment = segments_[piece.segment];
  std::memcpy(into.data(), segment.literal.data() + at, into.size());
  if (!with_checksums) return;
  auto next = std::lower_bound(segment.checksums.begin(), segment.checksums.end(), at,
                               [](const auto& checksum, std::uint64_t begin) { return checksum.at + 4 <= begin; });
  for (; next != segment.checksums.end() && next->at < at + into.size(); ++next) {
    std::array<std::byte, 4> bytes{};
    store_le(bytes.data(), checksum_of(*contents_[next->content]));
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (next->at + i >= at && next->at + i < at + into.size()) into[next->at + i - at] = bytes[i];
    }
  }
}

void CapturedFile::read(std::uint64_t offset, std::span<std::byte> into) const {
  for_each_piece(offset, into, [&](const Piece& piece, std::uint64_t at, std::span<std::byte> part) {
    if (piece.is_content)
      memory_->read(content_of(piece).what.range, at, part);
    else
      copy_literal(piece, at, part, false);
  });
}

void CapturedFile::take(std::uint64_t offset, std::span<std::byte> into) const {
  for_each_piece(offset, into, [&](const Piece& piece, std::uint64_t at, std::span<std::byte> part) {
    if (piece.is_content)
      take_content(content_of(piece), at, part);
    else
      copy_literal(piece, at, part, true);
  });
}

void CapturedFile::take_content(Content& content, std::uint64_t at, std::span<std::byte> into) const {
  memory_->read(content.what.range, at, into);
  const std::uint32_t checksum = crc32(0, into);
  {
    const std::unique_lock lock(content.mutex);
    content.taken[at] = {.size = into.size(), .checksum = checksum};
    content.taken_bytes += into.size();
    memory_->release(content.what.range, at, into.size());
    if (content.taken_bytes < content.what.size) return;
  }
  const std::lock_guard lock(mutex_);
  complete_.notify_all();
}

std::uint32_t CapturedFile::checksum_of(Content& content) const {
  const auto is_complete = [&] {
    const std::shared_lock lock(content.mutex);
    return content.taken_bytes == content.what.size;
  };
  std::unique_lock lock(mutex_);
  complete_.wait(lock, [&] { return given_up_ || is_complete(); });
  if (!is_complete()) throw Error(Errc::interrupted, "the save has failed");
  const std::shared_lock parts(content.mutex);
  std::uint32_t checksum = 0;
  for (const auto& [begin, part] : content.taken) checksum = crc32_of_both(checksum, part.checksum, part.size);
  return checksum;
}

bool CapturedFile::read_if_held(std::uint64_t offset, std::span<std::byte> into) const {
  bool held = true;
  for_each_piece(offset, into, [&](const Piece& piece, std::uint64_t at, std::span<std::byte> part) {
    if (!held) return;
    if (!piece.is_content) {
      copy_literal(piece, at, part, false);
      return;
    }
    Content& content = content_of(piece);
    const std::shared_lock lock(content.mutex);
    auto next = content.taken.upper_bound(at);
    const bool after = next != content.taken.end() && next->first < at + part.size();
    const bool before = next != content.taken.begin() && std::prev(next)->first + std::prev(next)->second.size > at;
    held = !after && !before;
    if (held) memory_->read(content.what.range, at, part);
  });
  return held;
}

void CapturedFile::give_up() const {
  const std::lock_guard lock(mutex_);
  given_up_ = true;
  complete_.notify_all();
}

void CapturedFile::complete(source::Parsed& parsed) const {
  if (placements_.empty()) return;
  for (Tensor& tensor : parsed.tensors) {
    const auto found = placements_.find(tensor.name);
    if (found == placements_.end() || found->second.global_shape.size() != tensor.shape.size()) continue;
    tensor.global_shape = found->second.global_shape;
    tensor.global_offsets = found->second.global_offsets;
  }
}

}  // namespace ckpt::capture

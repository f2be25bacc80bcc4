// SPDX-License-Identifier: Apache-2.0
#include "doors/piece_reader.hpp"

#include "doors/announcement.hpp"
#include "source/steady.hpp"

#include <ckpt/error.hpp>

#include <algorithm>

namespace ckpt::doors {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Errc::busy, what).with_hint("save it again once its writer is done");
}

[[noreturn]] void changed(const source::TreeEntry& entry) {
  refuse("'" + entry.origin + "' changed while it was being read");
}

}  // namespace

PieceReader::PieceReader(const std::vector<source::TreeEntry>& entries, std::uint64_t piece_size)
    : piece_size_(piece_size) {
  for (const source::TreeEntry& entry : entries) {
    if (entry.file.type != format::EntryType::file || entry.file.size == 0) continue;
    files_.push_back({.entry = &entry, .begin = bytes_, .reader = nullptr});
    bytes_ += entry.file.size;
  }
  count_ = piece_count(bytes_, piece_size_);
}

std::shared_ptr<const os::AdaptiveReader> PieceReader::open(File& file) {
  const std::lock_guard lock(mutex_);
  if (file.reader == nullptr) {
    auto reader = std::make_shared<const os::AdaptiveReader>(file.entry->origin);
    source::require_unchanged(*file.entry, reader->fd());
    source::require_not_open_for_writing(*file.entry, reader->fd());
    file.reader = std::move(reader);
  }
  return file.reader;
}

void PieceReader::close(File& file) {
  const std::lock_guard lock(mutex_);
  file.reader.reset();
}

std::span<const std::byte> PieceReader::read(std::uint64_t number, os::AlignedBuffer& buffer) {
  const std::uint64_t begin = number * piece_size_;
  const std::uint64_t end = std::min(begin + piece_size_, bytes_);
  const auto starts_after = [](std::uint64_t at, const File& file) { return at < file.begin; };
  auto file = std::prev(std::upper_bound(files_.begin(), files_.end(), begin, starts_after));
  std::span<const std::byte> piece;
  for (std::uint64_t at = begin; at < end; ++file) {
    const auto reader = open(*file);
    const std::uint64_t file_end = file->begin + file->entry->file.size;
    const std::uint64_t size = std::min(end, file_end) - at;
    if (size == end - begin) {
      piece = reader->read(at - file->begin, size, buffer);
    } else {
      buffer.reserve(end - begin);
      const auto part = buffer.span().subspan(at - begin, size);
      if (os::read_at(reader->fd(), at - file->begin, part, reader->path()) != size) changed(*file->entry);
      piece = buffer.span().first(at - begin + size);
    }
    source::require_unchanged(*file->entry, reader->fd());
    at += size;
    if (at == file_end) close(*file);
  }
  if (piece.size() != end - begin) changed(*std::prev(file)->entry);
  return piece;
}

Digest PieceDigests::note(std::uint64_t number, std::span<const std::byte> bytes) {
  const Digest digest = piece_digest(shard_, number, bytes);
  if (known_[number] != 0 && digests_[number] != digest) refuse("the input changed while it was being read");
  digests_[number] = digest;
  known_[number] = 1;
  return digest;
}

Digest PieceDigests::total() const {
  Hasher hasher;
  for (const Digest& digest : digests_) hasher.update(digest.bytes);
  return hasher.digest();
}

}  // namespace ckpt::doors

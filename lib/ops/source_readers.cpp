// SPDX-License-Identifier: Apache-2.0
#include "ops/source_readers.hpp"

#include "source/steady.hpp"

#include <algorithm>

namespace ckpt::ops {
namespace {

[[noreturn]] void changed(const std::string& path) {
  throw Error(Errc::busy, "'" + path + "' changed while it was being read")
      .with_hint("save it again once its writer is done");
}

}  // namespace

std::shared_ptr<const os::AdaptiveReader> open_source(const source::TreeEntry& entry) {
  auto reader = std::make_shared<os::AdaptiveReader>(entry.origin);
  source::require_unchanged(entry, reader->fd());
  source::require_not_open_for_writing(entry, reader->fd());
  return reader;
}

std::span<const std::byte> read_source(const os::AdaptiveReader& reader, std::uint64_t offset, std::uint64_t size,
                                       os::AlignedBuffer& buffer) {
  const auto bytes = reader.read(offset, size, buffer);
  if (bytes.size() != size) changed(reader.path());
  return bytes;
}

std::shared_ptr<const source::Input> input_of(const source::TreeEntry& entry) {
  if (entry.held != nullptr) return entry.held;
  return std::make_shared<SourceInput>(entry);
}

SourceReaders::SourceReaders(const std::vector<source::TreeEntry>& entries, std::vector<std::size_t> uses)
    : entries_(entries), slots_(entries.size()) {
  for (std::size_t i = 0; i < uses.size(); ++i) slots_[i].uses_left = uses[i];
}

std::span<const std::byte> SourceReaders::read(std::size_t entry, std::uint64_t offset, std::uint64_t size,
                                               Reading reading, os::AlignedBuffer& buffer) {
  if (const auto& held = entries_[entry].held) {
    buffer.reserve(size);
    const std::span<std::byte> into(buffer.data(), size);
    if (reading == Reading::take)
      held->take(offset, into);
    else
      held->read(offset, into);
    return into;
  }
  const auto bytes = read_source(*borrow(entry), offset, size, buffer);
  give_back(entry);
  return bytes;
}

std::shared_ptr<const os::AdaptiveReader> SourceReaders::borrow(std::size_t entry) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[entry];
  if (slot.reader == nullptr) slot.reader = open_source(entries_[entry]);
  return slot.reader;
}

void SourceReaders::give_back(std::size_t entry) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[entry];
  if (--slot.uses_left > 0) return;
  source::require_unchanged(entries_[entry], slot.reader->fd());
  slot.reader.reset();
}

SourceInput::SourceInput(const source::TreeEntry& entry) : reader_(open_source(entry)) {}

std::uint64_t SourceInput::size() const { return reader_->size(); }

void SourceInput::read(std::uint64_t offset, std::span<std::byte> into) const {
  // Parsers read small pieces: through the cache, where the next piece then is.
  if (os::read_at(reader_->fd(), offset, into, reader_->path()) != into.size()) changed(reader_->path());
}

}  // namespace ckpt::ops

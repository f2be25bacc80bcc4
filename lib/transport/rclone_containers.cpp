// SPDX-License-Identifier: Apache-2.0
#include "transport/rclone_containers.hpp"

#include "codec/typed_block.hpp"
#include "format/constants.hpp"
#include "format/container_index.hpp"
#include "format/damaged.hpp"
#include "format/ends.hpp"

#include <ckpt/error.hpp>

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>

namespace ckpt::transport {
namespace {

/// What is fetched at first of a container's end: for most its index is in it.
constexpr std::uint64_t first_tail = 256U << 10U;
/// The header, and for most the catalog.
constexpr std::uint64_t first_head = 64U << 10U;
/// A block and the chain of its bases fit in many times; a forged index must not take the memory.
constexpr std::uint64_t most_of_chain = 128U << 20U;
/// Containers whose indexes are kept.
constexpr std::size_t most_open = 32;

os::Fd sparse_file(std::uint64_t size) {
  os::Fd file(::memfd_create("ckpt-container", MFD_CLOEXEC));
  if (!file.valid()) os::throw_errno(errno, "cannot make a file in memory");
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) os::throw_errno(errno, "cannot size a file in memory");
  return file;
}

/// Lets go of all that is in it.
void empty(const os::Fd& file, std::uint64_t size) {
  if (::ftruncate(file.get(), 0) != 0 || ::ftruncate(file.get(), static_cast<off_t>(size)) != 0)
    os::throw_errno(errno, "cannot size a file in memory");
}

}  // namespace

void RcloneContainers::fetch(const Sparse& container, std::uint64_t offset, std::uint64_t size) const {
  const Bytes bytes = remote_.read(container.place.object, offset, size);
  os::write_at(container.file, offset, bytes, "a file in memory");
}

/// All that a reader looks at when it opens a container.
void RcloneContainers::fetch_ends(const Sparse& container) const {
  const std::uint64_t size = container.place.shard.size;
  const std::string name = remote_.address(container.place.object);
  if (size < format::header_size + format::footer_size)
    throw format::Damaged(DamageKind::truncated, 0, size, "'" + name + "' is too short for a container");
  const std::uint64_t tail = std::min(size, first_tail);
  fetch(container, size - tail, tail);
  Bytes footer(format::footer_size);
  if (os::read_at(container.file, size - footer.size(), footer, name) != footer.size())
    throw Error(Errc::io, "a file in memory lost what was written to it");
  const format::Section index = format::decode_footer(footer, size, name).index;
  if (index.offset < size - tail) fetch(container, index.offset, size - tail - index.offset);
  Bytes packed(index.size);
  if (os::read_at(container.file, index.offset, packed, name) != packed.size())
    throw Error(Errc::io, "a file in memory lost what was written to it");
  if (xxh3_128(ByteView(packed)) != index.hash)
    throw format::Damaged(DamageKind::altered, index.offset, index.offset + index.size,
                          "'" + name + "': the index fails its checksum");
  const format::CatalogRecord catalog = format::decode_index(packed, index.offset).catalog;
  const std::uint64_t head = std::min(size, first_head);
  fetch(container, 0, head);
  if (catalog.place + catalog.stored_size > head) fetch(container, catalog.place, catalog.stored_size);
}

RcloneContainers::Sparse& RcloneContainers::open_sparse(const format::BaseCheckpoint& checkpoint,
                                                        std::uint32_t rank) const {
  const auto known = std::find_if(open_.begin(), open_.end(),
                                  [&](const Sparse& s) { return s.checkpoint == checkpoint && s.rank == rank; });
  if (known != open_.end()) return *known;
  Sparse container{.checkpoint = checkpoint, .rank = rank, .place = find_(checkpoint, rank)};
  container.file = sparse_file(container.place.shard.size);
  fetch_ends(container);
  // Not owned: what this opens lives no longer than this.
  const std::shared_ptr<const format::BaseContainers> self(std::shared_ptr<void>(), this);
  container.reader =
      std::make_shared<const format::ContainerReader>("/proc/self/fd/" + std::to_string(container.file.get()), self);
  if (container.reader->digest() != container.place.shard.digest ||
      container.reader->index().root != container.place.shard.root)
    throw format::Damaged(DamageKind::altered, 0, 0,
                          "'" + remote_.address(container.place.object) + "' is not the container of its manifest");
  empty(container.file, container.place.shard.size);  // the reader keeps what it has read
  open_.push_back(std::move(container));
  return open_.back();
}

std::shared_ptr<const format::ContainerReader> RcloneContainers::open(const format::BaseCheckpoint& checkpoint,
                                                                      std::uint32_t rank) const {
  return open_sparse(checkpoint, rank).reader;
}

/// The stored bytes of a block and of all that it's decoded against.
void RcloneContainers::fetch_chain(Sparse& container, std::uint64_t block, unsigned depth) {
  const auto& blocks = container.reader->index().blocks;
  const std::string name = "'" + remote_.address(container.place.object) + "'";
  if (block >= blocks.size()) throw Error(Errc::not_found, name + " has no such block");
  if (depth > format::max_chain)
    throw format::Damaged(DamageKind::altered, 0, 0, name + " has a chain of bases that is too long");
  if (!container.held.insert(block).second) return;
  const format::BlockRecord& record = blocks[block];
  fetched_ += record.stored_size;
  if (fetched_ > most_of_chain)
    throw format::Damaged(DamageKind::altered, 0, 0, name + " has a block that needs more bytes than any can");
  if (record.stored_size > 0) fetch(container, record.place, record.stored_size);
  if (!record.base) return;
  Sparse* from = &container;
  if (record.base->checkpoint != format::own_shard) {
    const auto& bases = container.reader->catalog().bases;
    if (record.base->checkpoint >= bases.size())
      throw format::Damaged(DamageKind::altered, 0, 0, name + " refers to a base that its catalog doesn't list");
    from = &open_sparse(bases[record.base->checkpoint], record.base->rank);
  }
  const auto& others = from->reader->index().blocks;
  const std::uint64_t needed = codec::base_size(record.codec, record.raw_size);
  std::uint64_t held = 0;
  for (std::uint64_t b = record.base->block; held < needed; ++b) {
    if (b >= others.size() || others[b].raw_size == 0)
      throw format::Damaged(DamageKind::altered, 0, 0, name + " has a base of another size");
    fetch_chain(*from, b, depth + 1);
    held += others[b].raw_size;
  }
}

void RcloneContainers::forget_blocks() {
  for (Sparse& container : open_) {
    if (!container.held.empty()) empty(container.file, container.place.shard.size);
    container.held.clear();
  }
  fetched_ = 0;
}

Bytes RcloneContainers::read_block(const format::BaseCheckpoint& checkpoint, std::uint32_t rank, std::uint64_t block) {
  forget_blocks();
  if (open_.size() > most_open) open_.clear();
  Sparse& container = open_sparse(checkpoint, rank);
  fetch_chain(container, block, 0);
  // A decoder keeps what was around a block: a new one each time, as other blocks are holes then.
  format::BlockDecoder decoder;
  const ByteView raw = decoder.read(*container.reader, block);
  Bytes bytes(raw.begin(), raw.end());
  forget_blocks();
  return bytes;
}

}  // namespace ckpt::transport

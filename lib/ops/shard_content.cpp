// SPDX-License-Identifier: Apache-2.0
#include "ops/shard_content.hpp"

#include "core/pipeline.hpp"
#include "core/stop.hpp"
#include "format/constants.hpp"
#include "format/container_index.hpp"
#include "ops/source_readers.hpp"
#include "source/parse.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace ckpt::ops {
namespace {

using source::TreeEntry;

/// The other files of the save, by their path in it.
class TreeSiblings final : public source::Siblings {
 public:
  explicit TreeSiblings(const std::vector<TreeEntry>& entries) {
    for (const TreeEntry& entry : entries) {
      if (entry.file.type == format::EntryType::file) by_path_.emplace(entry.file.path, &entry);
    }
  }
  [[nodiscard]] std::shared_ptr<const source::Input> open(std::string_view path) const override {
    const auto it = by_path_.find(path);
    return it == by_path_.end() ? nullptr : input_of(*it->second);
  }

 private:
  std::unordered_map<std::string_view, const TreeEntry*> by_path_;
};

/// Neighbouring blocks of one file that are read at once.
struct Unit {
  std::size_t file = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::uint64_t first_block = 0;
  std::uint64_t block_count = 0;
};

std::vector<Unit> plan_units(const format::Catalog& catalog) {
  std::vector<Unit> units;
  for (std::size_t f = 0; f < catalog.files.size(); ++f) {
    const format::FileEntry& file = catalog.files[f];
    std::uint64_t offset = 0;
    Unit unit{.file = f, .offset = 0, .size = 0, .first_block = file.first_block, .block_count = 0};
    for (std::uint64_t b = file.first_block; b < file.first_block + file.block_count; ++b) {
      const std::uint64_t size = catalog.block_sizes[b];
      if (unit.block_count > 0 && unit.size + size > format::block_size) {
        units.push_back(unit);
        unit = {.file = f, .offset = offset, .size = 0, .first_block = b, .block_count = 0};
      }
      unit.size += size;
      ++unit.block_count;
      offset += size;
    }
    if (unit.block_count > 0) units.push_back(unit);
  }
  return units;
}

/// One worker's failure ends the others' waiting for what it would have taken.
class GiveUp {
 public:
  explicit GiveUp(const std::vector<TreeEntry>& entries) : entries_(&entries) {}
  GiveUp(const GiveUp&) = delete;
  GiveUp& operator=(const GiveUp&) = delete;
  ~GiveUp() {
    if (entries_ == nullptr) return;
    for (const TreeEntry& entry : *entries_) {
      if (entry.held != nullptr) entry.held->give_up();
    }
  }
  void cancel() { entries_ = nullptr; }

 private:
  const std::vector<TreeEntry>* entries_;
};

struct UnitContent {
  Pool<os::AlignedBuffer>::Lease buffer;
  Pool<Bytes>::Lease stored;  ///< of all encoded blocks
  ByteView bytes;
  std::vector<Digest> hashes;
  std::vector<EncodedBlock> encoded;
};

/// The first list is taken as it is: mostly it's the only one, and can be large.
template <class T>
void append_all(std::vector<T>& to, std::vector<T> from) {
  if (to.empty()) {
    to = std::move(from);
  } else {
    std::move(from.begin(), from.end(), std::back_inserter(to));
  }
}

bool same_entry(const format::FileEntry& a, const format::FileEntry& b) {
  return a.path == b.path && a.type == b.type && a.mode == b.mode && a.size == b.size && a.target == b.target;
}

}  // namespace

format::Catalog describe_content(const std::vector<TreeEntry>& entries, format::ShardInfo shard, bool allow_malformed,
                                 unsigned jobs, Monitor& monitor) {
  const TreeSiblings siblings(entries);
  format::Catalog catalog;
  catalog.shard = std::move(shard);
  run_ordered(
      entries.size(), worker_count(jobs), 64,
      [&](std::size_t i) {
        require_no_stop(monitor);
        if (entries[i].file.type != format::EntryType::file) return source::Parsed{};
        const auto input = input_of(entries[i]);
        source::Parsed parsed = source::parse(entries[i].file.path, *input, siblings);
        if (entries[i].held != nullptr) entries[i].held->complete(parsed);
        return parsed;
      },
      [&](std::size_t i, source::Parsed parsed) {
        format::FileEntry file = entries[i].file;
        if (!parsed.malformed.empty()) {
          const std::string why = entries[i].shown + ": " + parsed.malformed;
          if (!allow_malformed) {
            throw Error(Errc::malformed, why).with_hint("use --allow-malformed to keep it as it is, marked suspect");
          }
          monitor.warning(why + "; the checkpoint is marked suspect");
          catalog.shard.marks.emplace("suspect", "'" + file.path + "': " + parsed.malformed);
        } else if (!parsed.note.empty()) {
          monitor.note(entries[i].shown + ": " + parsed.note);
        }
        file.kind = parsed.kind;
        file.note = parsed.malformed.empty() ? std::move(parsed.note) : std::move(parsed.malformed);
        const std::vector<std::uint64_t> blocks = format::cut_into_blocks(file.size, parsed.extents);
        file.first_block = catalog.block_sizes.size();
        file.block_count = blocks.size();
        file.first_extent = catalog.extents.size();
        file.extent_count = parsed.extents.size();
        file.first_tensor = catalog.tensors.size();
        file.tensor_count = parsed.tensors.size();
        append_all(catalog.block_sizes, blocks);
        append_all(catalog.extents, std::move(parsed.extents));
        append_all(catalog.tensors, std::move(parsed.tensors));
        catalog.files.push_back(std::move(file));
      });
  return catalog;
}

namespace {

void pass_blocks(const std::vector<TreeEntry>& entries, const format::Catalog& catalog, unsigned jobs,
                 Monitor& monitor, std::string_view stage, Reading reading, const BlockEncoding& encode,
                 const EncodedConsumer& consume) {
  const std::vector<Unit> units = plan_units(catalog);
  std::vector<std::size_t> uses(entries.size());
  for (const Unit& unit : units) ++uses[unit.file];
  SourceReaders readers(entries, std::move(uses));
  Pool<os::AlignedBuffer> buffers;
  Pool<Bytes> stored;
  const unsigned workers = worker_count(jobs);
  const std::uint64_t total = catalog.raw_bytes();
  std::uint64_t done = 0;
  run_ordered(
      units.size(), workers, static_cast<std::size_t>(workers) + 2,
      [&](std::size_t u) {
        GiveUp give_up(entries);
        require_no_stop(monitor);
        const Unit& unit = units[u];
        UnitContent content{
            .buffer = buffers.take(), .stored = stored.take(), .bytes = {}, .hashes = {}, .encoded = {}};
        content.stored->clear();
        if (encode) content.stored->reserve(unit.size);
        content.bytes = readers.read(unit.file, unit.offset, unit.size, reading, *content.buffer);
        std::uint64_t at = 0;
        for (std::uint64_t b = unit.first_block; b < unit.first_block + unit.block_count; ++b) {
          const ByteView raw = content.bytes.subspan(at, catalog.block_sizes[b]);
          content.hashes.push_back(xxh3_128(raw));
          if (encode) content.encoded.push_back(encode(b, raw, content.hashes.back(), *content.stored));
          at += catalog.block_sizes[b];
        }
        give_up.cancel();
        return content;
      },
      [&](std::size_t u, UnitContent content) {
        const Unit& unit = units[u];
        std::uint64_t at = 0;
        for (std::uint64_t i = 0; i < unit.block_count; ++i) {
          const ByteView raw = content.bytes.subspan(at, catalog.block_sizes[unit.first_block + i]);
          const EncodedBlock encoded = encode ? content.encoded[i] : EncodedBlock{};
          const ByteView bytes =
              encoded.codec == codec::Codec::raw ? raw : ByteView(*content.stored).subspan(encoded.begin, encoded.size);
          consume(unit.first_block + i, raw, content.hashes[i], encoded, bytes);
          at += raw.size();
        }
        done += unit.size;
        monitor.progress({.stage = stage, .done = done, .total = total});
      });
}

}  // namespace

void encode_blocks(const std::vector<TreeEntry>& entries, const format::Catalog& catalog, unsigned jobs,
                   Monitor& monitor, std::string_view stage, const BlockEncoding& encode,
                   const EncodedConsumer& consume) {
  pass_blocks(entries, catalog, jobs, monitor, stage, Reading::take, encode, consume);
}

void read_blocks(const std::vector<TreeEntry>& entries, const format::Catalog& catalog, unsigned jobs, Monitor& monitor,
                 std::string_view stage, const BlockConsumer& consume) {
  pass_blocks(
      entries, catalog, jobs, monitor, stage, Reading::take, {},
      [&](std::uint64_t, ByteView raw, const Digest& hash, const EncodedBlock&, ByteView) { consume(raw, hash); });
}

bool has_same_content(const std::vector<TreeEntry>& entries, const format::Catalog& stored, const Digest& stored_root,
                      unsigned jobs, Monitor& monitor) {
  const bool same_names =
      std::equal(entries.begin(), entries.end(), stored.files.begin(), stored.files.end(),
                 [](const TreeEntry& a, const format::FileEntry& b) { return same_entry(a.file, b); });
  if (!same_names) return false;
  std::vector<Digest> hashes;
  hashes.reserve(stored.block_sizes.size());
  pass_blocks(entries, stored, jobs, monitor, "compare", Reading::look, {},
              [&](std::uint64_t, ByteView, const Digest& hash, const EncodedBlock&, ByteView) { hashes.push_back(hash); });
  return format::shard_root(stored, hashes) == stored_root;
}

}  // namespace ckpt::ops

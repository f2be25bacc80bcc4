// SPDX-License-Identifier: Apache-2.0
#include "ops/diff_side.hpp"

#include "format/constants.hpp"
#include "ops/open_shard.hpp"
#include "ops/shard_content.hpp"
#include "ops/source_readers.hpp"
#include "store/layout.hpp"
#include "store/store.hpp"

#include <ckpt/address.hpp>

#include <mutex>
#include <utility>

namespace ckpt::ops {
namespace {

std::vector<SideFile> files_of(const format::Catalog& catalog, std::uint32_t rank) {
  std::vector<SideFile> files;
  for (const format::FileEntry& entry : catalog.files) {
    const auto extents = catalog.extents.begin() + static_cast<std::ptrdiff_t>(entry.first_extent);
    const auto tensors = catalog.tensors.begin() + static_cast<std::ptrdiff_t>(entry.first_tensor);
    files.push_back({.path = entry.path,
                     .rank = rank,
                     .type = entry.type,
                     .kind = entry.kind,
                     .size = entry.size,
                     .target = entry.target,
                     .extents = {extents, extents + static_cast<std::ptrdiff_t>(entry.extent_count)},
                     .tensors = {tensors, tensors + static_cast<std::ptrdiff_t>(entry.tensor_count)}});
  }
  return files;
}

bool is_directory(const SideFile& file) { return file.type == format::EntryType::directory; }

class StoredFileBytes final : public RandomBytes {
 public:
  StoredFileBytes(std::shared_ptr<const StoredFile> file, std::size_t blocks)
      : file_(std::move(file)), cursor_(*file_, blocks) {}
  [[nodiscard]] std::uint64_t size() const override { return file_->size(); }
  [[nodiscard]] ByteView at(std::uint64_t offset) override { return cursor_.at(offset); }

 private:
  std::shared_ptr<const StoredFile> file_;
  BlockCursor cursor_;
};

class StoredSide final : public DiffSide {
 public:
  explicit StoredSide(store::Checkpoint checkpoint) : checkpoint_(std::move(checkpoint)), shards_(checkpoint_) {
    name_ = checkpoint_.directory;
    for (std::size_t s = 0; s < checkpoint_.manifest.shards.size(); ++s) {
      const auto container = shards_.get(s);
      std::size_t entry = 0;
      for (SideFile& file : files_of(container->catalog(), checkpoint_.manifest.shards[s].rank)) {
        if (!is_directory(file)) {
          places_.push_back({.shard = s, .entry = entry});
          files_.push_back(std::move(file));
        }
        ++entry;
      }
    }
  }

  void set_name(std::string name) { name_ = std::move(name); }

  [[nodiscard]] std::unique_ptr<RandomBytes> open(std::size_t file, std::size_t blocks) const override {
    return std::make_unique<StoredFileBytes>(stored(file), blocks);
  }

  [[nodiscard]] std::shared_ptr<const StoredFile> stored(std::size_t file) const override {
    const std::lock_guard lock(mutex_);
    if (last_ != nullptr && last_file_ == file) return last_;
    const auto container = shards_.get(places_[file].shard);
    last_ = std::make_shared<const StoredFile>(container, container->catalog().files.at(places_[file].entry));
    last_file_ = file;
    return last_;
  }

  // What a store holds never changes.
  void require_unchanged() const override {}

 private:
  struct Place {
    std::size_t shard = 0;
    std::size_t entry = 0;  ///< in the shard's catalog
  };
  store::Checkpoint checkpoint_;
  std::vector<Place> places_;
  mutable std::mutex mutex_;
  mutable ShardReaders shards_;
  mutable std::shared_ptr<const StoredFile> last_;
  mutable std::size_t last_file_ = 0;
};

/// Reads at multiples of the size of a block, so that neighbours in it are read once.
class PlainBytes final : public RandomBytes {
 public:
  PlainBytes(const source::TreeEntry& entry, std::size_t blocks) : reader_(open_source(entry)), pages_(blocks) {}

  [[nodiscard]] std::uint64_t size() const override { return reader_->size(); }

  [[nodiscard]] ByteView at(std::uint64_t offset) override {
    const std::uint64_t page = offset / format::block_size;
    Page* oldest = &pages_.front();
    for (Page& each : pages_) {
      if (each.used != 0 && each.number == page) {
        each.used = ++clock_;
        return each.bytes.subspan(offset % format::block_size);
      }
      if (each.used < oldest->used) oldest = &each;
    }
    const std::uint64_t begin = page * format::block_size;
    oldest->used = 0;
    oldest->bytes =
        read_source(*reader_, begin, std::min<std::uint64_t>(format::block_size, size() - begin), oldest->buffer);
    oldest->number = page;
    oldest->used = ++clock_;
    return oldest->bytes.subspan(offset % format::block_size);
  }

 private:
  struct Page {
    std::uint64_t number = 0;
    std::uint64_t used = 0;  ///< 0: nothing is there
    os::AlignedBuffer buffer;
    ByteView bytes;
  };
  std::shared_ptr<const os::AdaptiveReader> reader_;
  std::vector<Page> pages_;
  std::uint64_t clock_ = 0;
};

format::Catalog describe(const std::vector<source::TreeEntry>& found, unsigned jobs, Monitor& monitor) {
  try {
    return describe_content(found, {}, false, jobs, monitor);
  } catch (const Error& error) {
    if (error.code() != Errc::malformed) throw;
    // Without the hint, which is for a save.
    throw Error(Errc::malformed, error.what());
  }
}

class PlainSide final : public DiffSide {
 public:
  PlainSide(const std::string& path, unsigned jobs, Monitor& monitor) {
    name_ = path;
    std::vector<source::TreeEntry> found =
        source::arrange(source::collect_tree({.operands = {path}, .directory = std::nullopt}));
    const format::Catalog catalog = describe(found, jobs, monitor);
    std::vector<SideFile> files = files_of(catalog, 0);
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (is_directory(files[i])) continue;
      files_.push_back(std::move(files[i]));
      entries_.push_back(std::move(found[i]));
    }
  }

  [[nodiscard]] std::unique_ptr<RandomBytes> open(std::size_t file, std::size_t blocks) const override {
    return std::make_unique<PlainBytes>(entries_[file], blocks);
  }

  [[nodiscard]] std::shared_ptr<const StoredFile> stored(std::size_t) const override { return nullptr; }

  void require_unchanged() const override {
    for (const source::TreeEntry& entry : entries_) {
      if (entry.file.type != format::EntryType::file) continue;
      const auto now = os::stat_path(entry.origin);
      if (now && source::is_unchanged(entry.status, *now)) continue;
      throw Error(Errc::busy, "'" + entry.origin + "' changed while it was compared")
          .with_hint("compare again once its writer is done");
    }
  }

 private:
  std::vector<source::TreeEntry> entries_;  ///< of files_
};

bool is_store(const std::string& path) { return os::exists(path + "/" + store::description_file); }

class SideInput final : public source::Input {
 public:
  SideInput(const DiffSide& side, std::size_t file) : path_(side.files()[file].path), bytes_(side.open(file, 2)) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_->size(); }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    // A store can call a file what it isn't, and a parser then believe what its kind promises.
    if (!lies_within(offset, into.size(), size())) throw Error(Errc::malformed, "'" + path_ + "' ends early");
    const std::lock_guard lock(mutex_);
    bytes_->read(offset, into);
  }

 private:
  std::string path_;
  mutable std::mutex mutex_;
  std::unique_ptr<RandomBytes> bytes_;
};

}  // namespace

std::unique_ptr<const DiffSide> open_side(const std::string& text, unsigned jobs, Monitor& monitor) {
  if (text.empty()) throw Error(Errc::invalid_argument, "an operand is empty");
  const Address address = parse_address(text);
  const bool has_selector = address.selector.kind != Selector::Kind::none;
  if (is_store(address.store) || (has_selector && !os::exists(text))) {
    const store::Store store = store::Store::open(address.store);
    store::Checkpoint checkpoint = store.resolve(address.selector);
    // A retired checkpoint's step may have been taken by another.
    const std::string name = checkpoint.retired ? to_string(address) : store.address(checkpoint.manifest.step);
    auto side = std::make_unique<StoredSide>(std::move(checkpoint));
    side->set_name(name);
    return side;
  }
  return std::make_unique<PlainSide>(text, jobs, monitor);
}

std::unique_ptr<source::Input> input_of(const DiffSide& side, std::size_t file) {
  return std::make_unique<SideInput>(side, file);
}

std::shared_ptr<const source::Input> SideSiblings::open(std::string_view path) const {
  const std::vector<SideFile>& files = side_.files();
  for (std::size_t i = 0; i < files.size(); ++i) {
    const bool found = files[i].rank == rank_ && files[i].path == path && files[i].type == format::EntryType::file;
    if (found) return input_of(side_, i);
  }
  return nullptr;
}

}  // namespace ckpt::ops

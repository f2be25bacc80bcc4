// SPDX-License-Identifier: Apache-2.0
#include "capi/captured_files.hpp"

#include "capi/status.hpp"
#include "format/path_rules.hpp"
#include "source/torch_archive_layout.hpp"
#include "source/torch_pickle_writer.hpp"

#include <sys/stat.h>
#include <algorithm>
#include <utility>

namespace ckpt::capi {
namespace {

constexpr std::string_view tensors_path = "state.pt";
constexpr std::string_view tensors_prefix = "state";
constexpr unsigned file_mode = 0644;

source::TreeEntry entry_of(const std::string& path, std::shared_ptr<const source::HeldInput> held,
                           std::int64_t seconds) {
  struct stat status {};
  status.st_mode = S_IFREG | file_mode;
  status.st_nlink = 1;
  status.st_size = static_cast<off_t>(held->size());
  status.st_mtim.tv_sec = seconds;
  source::TreeEntry entry = source::make_entry(path, {}, status, false);
  entry.shown = "'" + path + "'";
  entry.held = std::move(held);
  return entry;
}

}  // namespace

std::size_t CapturedFiles::add_range(std::uint64_t size) {
  sizes_.push_back(size);
  used_.push_back(false);
  return sizes_.size() - 1;
}

void CapturedFiles::require_new_path(std::string_view path) const {
  if (!format::is_safe_path(path)) refuse("'" + std::string(path) + "' can't be the path of a file");
  const bool is_taken =
      std::any_of(files_.begin(), files_.end(), [&](const File& file) { return file.path == path; }) ||
      (!tensors_.empty() && path == tensors_path);
  if (is_taken) refuse("'" + std::string(path) + "' is there already");
}

void CapturedFiles::add_file(std::string_view path, ByteView bytes) {
  require_new_path(path);
  File file{.path = std::string(path), .prefix = {}, .records = {}};
  file.records.push_back({.name = {}, .content = {}, .bytes = Bytes(bytes.begin(), bytes.end())});
  files_.push_back(std::move(file));
}

void CapturedFiles::begin_archive(std::string_view path, std::string_view prefix) {
  require_new_path(path);
  if (prefix.empty() || prefix.find('/') != std::string_view::npos) refuse("an archive's prefix is one name");
  files_.push_back({.path = std::string(path), .prefix = std::string(prefix), .records = {}});
}

CapturedFiles::File& CapturedFiles::open_archive() {
  if (files_.empty() || !files_.back().prefix) refuse("a record without an archive");
  return files_.back();
}

void CapturedFiles::add_record(std::string_view name, ByteView bytes) {
  constexpr std::size_t longest = 4096;
  if (name.empty() || name.size() > longest) refuse("a record's name has 1 to 4096 bytes");
  open_archive().records.push_back(
      {.name = std::string(name), .content = {}, .bytes = Bytes(bytes.begin(), bytes.end())});
}

void CapturedFiles::add_record_of(std::string_view name, std::size_t range, std::uint64_t size) {
  File& archive = open_archive();
  if (range >= sizes_.size() || size > sizes_[range]) refuse("a record of memory that wasn't named");
  if (used_[range]) refuse("a range can be one record");
  archive.records.push_back({.name = std::string(name), .content = {{.range = range, .size = size}}, .bytes = {}});
  used_[range] = true;
}

void CapturedFiles::add_tensor(NamedTensor named) {
  const Tensor& tensor = named.tensor;
  const auto wrong = [&](const std::string& why) { refuse("tensor '" + tensor.name + "' " + why); };
  if (tensors_.empty()) require_new_path(tensors_path);
  if (names_.contains(tensor.name)) wrong("is there already");
  if (named.range >= sizes_.size()) wrong("is of memory that wasn't named");
  if (!source::can_be_pickled(tensor.dtype)) wrong("has a type that PyTorch has no name for");
  if (std::any_of(tensor.strides.begin(), tensor.strides.end(), [](std::int64_t s) { return s < 0; }))
    wrong("has a negative stride");
  if (tensor.offset % (bits_of(tensor.dtype) / 8) != 0) wrong("doesn't begin at an element");
  const auto end = view_end(tensor);
  if (!element_count(tensor) || !end || *end > sizes_[named.range]) wrong("doesn't lie in its range");
  const auto& offsets = tensor.global_offsets;
  for (std::size_t d = 0; d < tensor.global_shape.size(); ++d) {
    if (offsets[d] < 0 || offsets[d] > tensor.global_shape[d] || tensor.shape[d] > tensor.global_shape[d] - offsets[d])
      wrong("doesn't lie in its whole");
  }
  // A record of a file can't be shared, and the tensors' is one.
  const auto is_ours = [&](const NamedTensor& other) { return other.range == named.range; };
  if (used_[named.range] && std::none_of(tensors_.begin(), tensors_.end(), is_ours))
    wrong("is of a range that is a record");
  used_[named.range] = true;
  names_.insert(tensor.name);
  tensors_.push_back(std::move(named));
}

std::shared_ptr<const capture::CapturedFile> CapturedFiles::capture(
    const File& file, const std::shared_ptr<capture::FrozenMemory>& memory) const {
  if (!file.prefix) {
    std::vector<source::ArchiveSegment> segments(1);
    segments.front().literal = as_text(file.records.front().bytes);
    return std::make_shared<capture::CapturedFile>(std::move(segments), std::vector<capture::FileContent>{}, memory,
                                                   capture::CapturedFile::Placements{});
  }
  source::TorchArchiveLayout layout(*file.prefix);
  std::vector<capture::FileContent> contents;
  for (const Record& record : file.records) {
    if (record.content && record.content->size > 0) {
      layout.add_content(record.name, contents.size(), record.content->size);
      contents.push_back(*record.content);
    } else {
      layout.add(record.name, record.bytes);
    }
  }
  return std::make_shared<capture::CapturedFile>(layout.finish(), std::move(contents), memory,
                                                 capture::CapturedFile::Placements{});
}

std::shared_ptr<const capture::CapturedFile> CapturedFiles::capture_tensors(
    const std::shared_ptr<capture::FrozenMemory>& memory) const {
  std::vector<std::size_t> ranges;  // in the order of the tensors
  std::vector<std::string> keys(sizes_.size());
  std::vector<source::PickledTensor> pickled;
  capture::CapturedFile::Placements placements;
  for (const NamedTensor& named : tensors_) {
    const Tensor& tensor = named.tensor;
    std::string& key = keys[named.range];
    if (key.empty()) {
      key = std::to_string(ranges.size());
      ranges.push_back(named.range);
    }
    pickled.push_back({.name = tensor.name,
                       .dtype = tensor.dtype,
                       .storage_key = key,
                       .storage_bytes = sizes_[named.range],
                       .offset = tensor.offset / (bits_of(tensor.dtype) / 8),
                       .shape = tensor.shape,
                       .strides = tensor.strides});
    if (!tensor.global_shape.empty()) placements[tensor.name] = {tensor.global_shape, tensor.global_offsets};
  }
  source::TorchArchiveLayout layout{std::string(tensors_prefix)};
  const std::string pickle = source::pickle_of(pickled);
  layout.add("data.pkl", as_bytes(pickle));
  layout.add("byteorder", as_bytes(std::string_view("little")));
  std::vector<capture::FileContent> contents;
  for (const std::size_t range : ranges) {
    if (sizes_[range] == 0) {
      layout.add("data/" + keys[range], {});
      continue;
    }
    layout.add_content("data/" + keys[range], contents.size(), sizes_[range]);
    contents.push_back({.range = range, .size = sizes_[range]});
  }
  layout.add("version", as_bytes(std::string_view("3\n")));
  return std::make_shared<capture::CapturedFile>(layout.finish(), std::move(contents), memory, std::move(placements));
}

std::vector<source::TreeEntry> CapturedFiles::entries(const std::shared_ptr<capture::FrozenMemory>& memory,
                                                      std::int64_t seconds) const {
  // What no record takes would be held for as long as the save lasts.
  std::vector<std::uint64_t> taken(sizes_.size());
  for (const File& file : files_) {
    for (const Record& record : file.records) {
      if (record.content) taken[record.content->range] = record.content->size;
    }
  }
  for (const NamedTensor& named : tensors_) taken[named.range] = sizes_[named.range];
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (taken[i] < sizes_[i]) memory->release(i, taken[i], sizes_[i] - taken[i]);
  }
  std::vector<source::TreeEntry> entries;
  for (const File& file : files_) entries.push_back(entry_of(file.path, capture(file, memory), seconds));
  if (!tensors_.empty()) entries.push_back(entry_of(std::string(tensors_path), capture_tensors(memory), seconds));
  return source::arrange(std::move(entries));
}

}  // namespace ckpt::capi

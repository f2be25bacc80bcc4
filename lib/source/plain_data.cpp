// SPDX-License-Identifier: Apache-2.0
#include "source/plain_data.hpp"

#include "source/dcp.hpp"
#include "source/pickle_reader.hpp"
#include "source/torch_legacy.hpp"
#include "source/zip_directory.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ckpt::source {
namespace {

/// Differ between two archives with the same content, or say nothing about it.
bool is_bookkeeping(std::string_view record) {
  constexpr std::string_view names[] = {"version", "byteorder", ".format_version", ".storage_alignment",
                                        ".data/serialization_id"};
  return record.empty() || record.ends_with('/') ||
         std::find(std::begin(names), std::end(names), record) != std::end(names);
}

/// True if an extent begins or ends inside the range.
bool holds_extent(std::span<const Extent> extents, std::uint64_t offset, std::uint64_t size) {
  const auto after = std::upper_bound(extents.begin(), extents.end(), offset,
                                      [](std::uint64_t at, const Extent& e) { return at < e.offset + e.size; });
  return after != extents.end() && after->offset < offset + size;
}

/// Adds what an archive holds that takes the bytes [begin, end). False if it can't be read.
bool add_archive(const Input& input, std::uint64_t begin, std::uint64_t end, const std::string& prefix,
                 bool has_pickles, std::span<const Extent> extents, PlainSpots& to) {
  const ZipResult zip = read_zip_directory(input, begin, end);
  if (zip.status != ZipStatus::complete) return false;
  const auto& entries = zip.directory.entries;
  std::vector<std::uint32_t> all(entries.size());
  std::iota(all.begin(), all.end(), 0U);
  std::vector<std::uint64_t> starts;
  if (locate_zip_data(input, zip.directory, all, starts)) return false;
  // numpy's archives have no folder of their own at the top.
  const std::string_view first = entries.empty() ? std::string_view{} : entries.front().name;
  const std::string_view root = has_pickles ? first.substr(0, first.find('/') + 1) : std::string_view{};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::string_view name = entries[i].name;
    if (name.starts_with(root)) name.remove_prefix(root.size());
    const bool is_object = name == "data.pkl";
    if (has_pickles && entries[i].stored && (is_object || name == "constants.pkl")) {
      if (entries[i].size > max_pickle_bytes) return false;
      std::string below = prefix;
      if (!is_object) below += below.empty() ? "constants" : ".constants";
      to.pickles.push_back({.name = std::move(below), .offset = starts[i], .size = entries[i].size});
      continue;
    }
    if ((has_pickles && is_bookkeeping(name)) || entries[i].size == 0) continue;
    if (holds_extent(extents, starts[i], entries[i].size)) continue;
    to.records.push_back({.name = prefix + (prefix.empty() ? "" : "/") + std::string(name),
                          .offset = starts[i],
                          .size = entries[i].size});
  }
  return true;
}

}  // namespace

std::optional<PlainSpots> find_plain_data(std::string_view path, FileKind kind, const Input& input,
                                          const Siblings& siblings, std::span<const Extent> extents) {
  PlainSpots spots;
  switch (kind) {
    case FileKind::torch_zip:
    case FileKind::npz:
      if (!add_archive(input, 0, input.size(), {}, kind == FileKind::torch_zip, extents, spots)) return std::nullopt;
      return spots;
    case FileKind::torch_legacy: {
      const auto object = find_legacy_object(input);
      if (!object) return std::nullopt;
      spots.pickles.push_back({.name = {}, .offset = object->first, .size = object->second - object->first});
      return spots;
    }
    case FileKind::dcp_metadata:
      if (input.size() > max_pickle_bytes) return std::nullopt;
      spots.pickles.push_back({.name = {}, .offset = 0, .size = input.size()});
      return spots;
    case FileKind::distcp:
      for (const DcpItem& item : find_dcp_items(path, input, siblings)) {
        if (item.tensor) continue;
        if (!add_archive(input, item.begin, item.end, item.name, true, extents, spots)) return std::nullopt;
      }
      return spots;
    default: return std::nullopt;
  }
}

}  // namespace ckpt::source

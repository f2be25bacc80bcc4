// SPDX-License-Identifier: Apache-2.0
#include "ops/diff_files.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace ckpt::ops {
namespace {

using format::EntryType;

/// Files that hold a word or two (`latest`) are shown as they are.
constexpr std::uint64_t most_text_number = 256;

std::string kind_of(const SideFile& file) {
  return std::string(file.type == EntryType::file ? name_of(file.kind) : name_of(file.type));
}

FileDiff lone(Change change, const SideFile& file) {
  FileDiff diff{.change = change, .kind = kind_of(file)};
  const bool removed = change == Change::removed;
  (removed ? diff.a : diff.b) = place_of(file);
  (removed ? diff.size_a : diff.size_b) = file.size;
  (removed ? diff.old_value : diff.new_value) = file.target;
  return diff;
}

/// One line of printable text, or nothing.
std::string short_text(const DiffSide& side, std::size_t file) {
  const std::uint64_t size = side.files()[file].size;
  if (size == 0 || size > most_text_number) return {};
  std::string text(static_cast<std::size_t>(size), '\0');
  side.open(file, 1)->read(0, std::as_writable_bytes(std::span(text)));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < '\x7f'; });  // ASCII alone
  return printable ? text : std::string();
}

/// For each file whether a tensor of it is.
std::vector<bool> have_resharded(const std::vector<SideFile>& files, const ReshardedParts& parts) {
  std::vector<bool> have(files.size());
  for (std::size_t f = 0; f < parts.size(); ++f) {
    have[f] = std::any_of(parts[f].begin(), parts[f].end(), [](const auto& part) { return part.has_value(); });
  }
  return have;
}

}  // namespace

DiffPlace place_of(const SideFile& file) { return {.file = file.path, .rank = file.rank}; }

std::vector<FileDiff> compare_presence(const std::vector<SideFile>& a, const std::vector<SideFile>& b,
                                       const std::vector<FilePair>& files, const std::vector<TensorPair>& tensors,
                                       const Resharding& resharding) {
  std::vector<bool> has_partner_a = have_resharded(a, resharding.parts_a);
  std::vector<bool> has_partner_b = have_resharded(b, resharding.parts_b);
  for (const TensorPair& pair : tensors) {
    if (!pair.a || !pair.b) continue;
    has_partner_a[pair.a->file] = true;
    has_partner_b[pair.b->file] = true;
  }
  std::vector<FileDiff> found;
  for (const FilePair& pair : files) {
    if (pair.a && pair.b) {
      const SideFile& x = a[*pair.a];
      const SideFile& y = b[*pair.b];
      if (x.type == EntryType::file || x.target == y.target) continue;
      found.push_back({.change = Change::changed,
                       .a = place_of(x),
                       .b = place_of(y),
                       .kind = kind_of(x),
                       .old_value = x.target,
                       .new_value = y.target});
    } else if (pair.a) {
      if (!has_partner_a[*pair.a]) found.push_back(lone(Change::removed, a[*pair.a]));
    } else if (!has_partner_b[*pair.b]) {
      found.push_back(lone(Change::added, b[*pair.b]));
    }
  }
  return found;
}

Tensor common_bytes(const SideFile& a, const SideFile& b) {
  Tensor bytes;
  bytes.dtype = DType::opaque;
  bytes.shape = {static_cast<std::int64_t>(std::min(a.size, b.size))};
  bytes.strides = {1};
  return bytes;
}

std::optional<FileDiff> file_diff(const DiffSide& a, const DiffSide& b, const Comparison& compared,
                                  const DiffNumbers& numbers) {
  const SideFile& x = a.files()[compared.file_a];
  const SideFile& y = b.files()[compared.file_b];
  const std::uint64_t longer = std::max(x.size, y.size) - std::min(x.size, y.size);
  if (numbers.changed + longer == 0) return std::nullopt;
  FileDiff diff{.change = Change::changed,
                .a = place_of(x),
                .b = place_of(y),
                .kind = kind_of(x),
                .size_a = x.size,
                .size_b = y.size,
                .changed_bytes = numbers.changed + longer};
  diff.old_value = short_text(a, compared.file_a);
  diff.new_value = short_text(b, compared.file_b);
  return diff;
}

}  // namespace ckpt::ops

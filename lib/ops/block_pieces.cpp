// SPDX-License-Identifier: Apache-2.0
#include "ops/block_pieces.hpp"

#include "core/bytes.hpp"
#include "ops/path_numbers.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace ckpt::ops {
namespace {

using format::Catalog;
using format::FileEntry;

/// A tensor's bytes, or what's between two of them.
struct NamedPiece {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::string name;           ///< in its file
  std::string name_anywhere;  ///< among all files; empty for what isn't a tensor
  DType dtype = DType::opaque;
};

void append_number(std::string& text, std::int64_t number) {
  text += '\0';
  text += std::to_string(number);
}

/// The name of the tensor that begins where each extent does. The first by name, where several do: aliases.
std::map<std::uint64_t, std::string> names_by_offset(const Catalog& catalog, const FileEntry& file) {
  std::map<std::uint64_t, std::string> names;
  for (std::uint64_t t = file.first_tensor; t < file.first_tensor + file.tensor_count; ++t) {
    const Tensor& tensor = catalog.tensors[t];
    if (!tensor.has_bytes) continue;
    std::string name = tensor.name;
    for (const std::int64_t offset : tensor.global_offsets) append_number(name, offset);
    const auto [known, is_new] = names.emplace(tensor.offset, name);
    if (!is_new && name < known->second) known->second = std::move(name);
  }
  return names;
}

std::vector<NamedPiece> pieces_of(const Catalog& catalog, const FileEntry& file) {
  const auto names = names_by_offset(catalog, file);
  std::vector<NamedPiece> pieces;
  std::uint64_t at = 0;
  std::string before = "start";
  const auto add_gap = [&](std::uint64_t end) {
    if (end > at) pieces.push_back({.begin = at, .end = end, .name = "after " + before, .name_anywhere = {}});
  };
  std::int64_t unnamed = 0;
  for (std::uint64_t e = file.first_extent; e < file.first_extent + file.extent_count; ++e) {
    const Extent& extent = catalog.extents[e];
    add_gap(extent.offset);
    const auto named = names.find(extent.offset);
    NamedPiece piece{.begin = extent.offset, .end = extent.offset + extent.size, .name = {}, .dtype = extent.dtype};
    if (named != names.end()) {
      piece.name = "tensor " + named->second;
      piece.name_anywhere = piece.name;
    } else {
      piece.name = "extent";
      append_number(piece.name, unnamed++);
    }
    before = piece.name;
    at = piece.end;
    pieces.push_back(std::move(piece));
  }
  add_gap(file.size);
  return pieces;
}

Digest name_of(std::string_view scope, std::string_view name, std::uint64_t offset, std::uint64_t size) {
  std::string text(scope);
  text += '\0';
  text += name;
  append_number(text, static_cast<std::int64_t>(offset));
  append_number(text, static_cast<std::int64_t>(size));
  return xxh3_128(text);
}

/// Takes its type from the piece that it holds most of.
void set_element(BlockPiece& block, const std::vector<NamedPiece>& pieces, std::size_t first, std::uint64_t begin,
                 std::uint64_t end) {
  std::uint64_t most = 0;
  for (std::size_t p = first; p < pieces.size() && pieces[p].begin < end; ++p) {
    const NamedPiece& piece = pieces[p];
    const std::uint64_t held = std::min(piece.end, end) - std::max(piece.begin, begin);
    if (codec::is_untyped(piece.dtype) || held <= most) continue;
    most = held;
    block.dtype = piece.dtype;
    block.element = codec::element_of(piece.dtype);
    const std::uint64_t width = block.element.width;
    block.lead = static_cast<std::uint8_t>((piece.begin % width + width - begin % width) % width);
  }
  // A tensor among much else says little of the block.
  block.untyped = most * 2 < end - begin;
}

}  // namespace

std::vector<BlockPiece> describe_pieces(const Catalog& catalog) {
  std::vector<BlockPiece> blocks;
  blocks.reserve(catalog.block_sizes.size());
  std::map<FileKind, std::int64_t> of_kind;
  for (const FileEntry& file : catalog.files) {
    if (file.type != format::EntryType::file) continue;
    std::string position = "kind";
    append_number(position, static_cast<std::int64_t>(file.kind));
    append_number(position, of_kind[file.kind]++);
    const std::string path = "path " + file.path;
    const std::string path_pattern = "like " + without_numbers(file.path);
    const std::vector<NamedPiece> pieces = pieces_of(catalog, file);
    std::size_t piece = 0;
    std::uint64_t begin = 0;
    for (std::uint64_t b = file.first_block; b < file.first_block + file.block_count; ++b) {
      const std::uint64_t end = begin + catalog.block_sizes[b];
      while (pieces[piece].end <= begin) ++piece;
      const NamedPiece& held = pieces[piece];
      const std::uint64_t offset = begin - held.begin;
      BlockPiece block;
      for (const std::string& scope : {path, path_pattern, position}) {
        block.names.push_back(name_of(scope, held.name, offset, end - begin));
      }
      if (!held.name_anywhere.empty()) {
        block.names.push_back(name_of("anywhere", held.name_anywhere, offset, end - begin));
      }
      set_element(block, pieces, piece, begin, end);
      blocks.push_back(std::move(block));
      begin = end;
    }
  }
  return blocks;
}

}  // namespace ckpt::ops

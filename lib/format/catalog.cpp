// SPDX-License-Identifier: Apache-2.0
// The catalog as CBOR tables, and the rule by which a file is cut into blocks.
#include "format/catalog.hpp"

#include "format/cbor_table.hpp"
#include "format/constants.hpp"
#include "format/path_rules.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace ckpt::format {
namespace {

enum TensorFlag : std::uint8_t { has_bytes = 1, conjugate = 2, negated = 4, sharded = 8 };
constexpr std::uint8_t known_tensor_flags = has_bytes | conjugate | negated | sharded;

[[noreturn]] void refuse_catalog(const std::string& why) {
  throw Damaged(DamageKind::altered, 0, 0, "catalog: " + why);
}

Json encode_texts(const std::map<std::string, std::string>& texts) {
  Json object = Json::object();
  for (const auto& [key, value] : texts) object[key] = value;
  return object;
}

std::map<std::string, std::string> decode_texts(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_object()) refuse_catalog(std::string("field '") + key + "' is missing");
  std::map<std::string, std::string> texts;
  for (const auto& [name, value] : it->items()) {
    if (!value.is_string()) refuse_catalog(std::string("field '") + key + "." + name + "' is not a text");
    texts[name] = value.get<std::string>();
  }
  return texts;
}

Json encode_shard(const ShardInfo& shard) {
  Json info = {{"step", shard.step},
               {"attempt", shard.attempt},
               {"rank", shard.rank},
               {"world_size", shard.world_size},
               {"writer", shard.writer},
               {"meta", encode_texts(shard.meta)},
               {"marks", encode_texts(shard.marks)}};
  if (shard.created) info["created"] = *shard.created;
  return info;
}

template <class T>
T field(const Json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) refuse_catalog(std::string("field '") + key + "' is missing");
  if constexpr (std::is_same_v<T, std::string>) {
    if (!it->is_string()) refuse_catalog(std::string("field '") + key + "' is not a text");
    return it->get<std::string>();
  } else {
    if (!it->is_number_integer() || (std::is_unsigned_v<T> && !it->is_number_unsigned())) {
      refuse_catalog(std::string("field '") + key + "' is not a number");
    }
    if constexpr (std::is_unsigned_v<T>) {
      if (it->get<std::uint64_t>() > std::numeric_limits<T>::max())
        refuse_catalog(std::string("field '") + key + "' is too large");
    }
    return it->get<T>();
  }
}

ShardInfo decode_shard(const Json& document) {
  const auto it = document.find("shard");
  if (it == document.end() || !it->is_object()) refuse_catalog("field 'shard' is missing");
  ShardInfo shard{.step = field<std::uint64_t>(*it, "step"),
                  .attempt = field<std::uint64_t>(*it, "attempt"),
                  .rank = field<std::uint32_t>(*it, "rank"),
                  .world_size = field<std::uint32_t>(*it, "world_size"),
                  .meta = decode_texts(*it, "meta"),
                  .created = std::nullopt,
                  .marks = decode_texts(*it, "marks"),
                  .writer = field<std::string>(*it, "writer")};
  if (it->contains("created")) shard.created = field<std::int64_t>(*it, "created");
  if (shard.world_size == 0 || shard.world_size > max_world_size) refuse_catalog("impossible world size");
  if (shard.rank >= shard.world_size) refuse_catalog("rank is not below the world size");
  return shard;
}

Json encode_files(const std::vector<FileEntry>& files) {
  std::vector<std::string_view> paths, targets, notes;
  std::vector<std::uint8_t> types, kinds;
  std::vector<std::uint32_t> modes, uids, gids;
  std::vector<std::uint64_t> sizes, blocks, extents, tensors;
  std::vector<std::int64_t> mtimes;
  for (const FileEntry& file : files) {
    paths.push_back(file.path);
    targets.push_back(file.target);
    notes.push_back(file.note);
    types.push_back(static_cast<std::uint8_t>(file.type));
    kinds.push_back(static_cast<std::uint8_t>(file.kind));
    modes.push_back(file.mode);
    sizes.push_back(file.size);
    mtimes.push_back(file.mtime_ns);
    blocks.push_back(file.block_count);
    extents.push_back(file.extent_count);
    tensors.push_back(file.tensor_count);
    if (file.uid && file.gid) {
      uids.push_back(*file.uid);
      gids.push_back(*file.gid);
    }
  }
  TableWriter table;
  table.add_texts("path", paths);
  table.add("type", types);
  table.add("mode", modes);
  table.add("size", sizes);
  table.add("mtime_ns", mtimes);
  table.add_texts("target", targets);
  table.add("kind", kinds);
  table.add_texts("note", notes);
  table.add("blocks", blocks);
  table.add("extents", extents);
  table.add("tensors", tensors);
  if (!files.empty() && uids.size() == files.size()) {
    table.add("uid", uids);
    table.add("gid", gids);
  }
  return std::move(table).take();
}

std::vector<FileEntry> decode_files(const Json& document) {
  const TableReader table(document, "files");
  const auto types = table.numbers<std::uint8_t>("type");
  const std::size_t count = types.size();
  const auto paths = table.texts("path", count);
  const auto targets = table.texts("target", count);
  const auto notes = table.texts("note", count);
  const auto kinds = table.numbers<std::uint8_t>("kind", count);
  const auto modes = table.numbers<std::uint32_t>("mode", count);
  const auto sizes = table.numbers<std::uint64_t>("size", count);
  const auto mtimes = table.numbers<std::int64_t>("mtime_ns", count);
  const auto blocks = table.numbers<std::uint64_t>("blocks", count);
  const auto extents = table.numbers<std::uint64_t>("extents", count);
  const auto tensors = table.numbers<std::uint64_t>("tensors", count);
  const bool owners = table.has("uid");
  const auto uids = owners ? table.numbers<std::uint32_t>("uid", count) : std::vector<std::uint32_t>{};
  const auto gids = owners ? table.numbers<std::uint32_t>("gid", count) : std::vector<std::uint32_t>{};

  std::vector<FileEntry> files(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (types[i] > static_cast<std::uint8_t>(EntryType::hardlink)) table.fail("type", "has an unknown value");
    if (kinds[i] >= file_kind_count) table.fail("kind", "has an unknown value");
    if (modes[i] > 07777) table.fail("mode", "has an impossible value");
    FileEntry& file = files[i];
    file.path = paths[i];
    file.type = static_cast<EntryType>(types[i]);
    file.mode = modes[i];
    file.size = sizes[i];
    file.mtime_ns = mtimes[i];
    file.target = targets[i];
    file.kind = static_cast<FileKind>(kinds[i]);
    file.note = notes[i];
    file.block_count = blocks[i];
    file.extent_count = extents[i];
    file.tensor_count = tensors[i];
    if (owners) {
      file.uid = uids[i];
      file.gid = gids[i];
    }
  }
  return files;
}

Json encode_tensors(const std::vector<Tensor>& tensors) {
  std::vector<std::string_view> names;
  std::vector<std::uint8_t> dtypes, layouts, flags, ranks;
  std::vector<std::uint64_t> offsets;
  std::vector<std::int64_t> shapes, strides, global_shapes, global_offsets;
  const auto extend = [](std::vector<std::int64_t>& to, const std::vector<std::int64_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  for (const Tensor& tensor : tensors) {
    const bool is_sharded = !tensor.global_shape.empty();
    names.push_back(tensor.name);
    dtypes.push_back(static_cast<std::uint8_t>(tensor.dtype));
    layouts.push_back(static_cast<std::uint8_t>(tensor.layout));
    flags.push_back(static_cast<std::uint8_t>((tensor.has_bytes ? has_bytes : 0) | (tensor.conjugate ? conjugate : 0) |
                                              (tensor.negative ? negated : 0) | (is_sharded ? sharded : 0)));
    if (tensor.shape.size() > 255) throw std::logic_error("a tensor of more than 255 dimensions");
    ranks.push_back(static_cast<std::uint8_t>(tensor.shape.size()));
    offsets.push_back(tensor.offset);
    extend(shapes, tensor.shape);
    extend(strides, tensor.strides);
    extend(global_shapes, tensor.global_shape);
    extend(global_offsets, tensor.global_offsets);
  }
  TableWriter table;
  table.add_texts("name", names);
  table.add("dtype", dtypes);
  table.add("layout", layouts);
  table.add("flags", flags);
  table.add("dims", ranks);
  table.add("offset", offsets);
  table.add("shape", shapes);
  table.add("stride", strides);
  table.add("global_shape", global_shapes);
  table.add("global_offset", global_offsets);
  return std::move(table).take();
}

/// Deals out the next `count` numbers of a column that holds those of all rows one after the other.
std::vector<std::int64_t> take_numbers(const std::vector<std::int64_t>& from, std::size_t& at, std::size_t count) {
  if (count > from.size() - at) refuse_catalog("a column of shapes ends early");
  const auto begin = from.begin() + static_cast<std::ptrdiff_t>(at);
  at += count;
  return {begin, begin + static_cast<std::ptrdiff_t>(count)};
}

std::vector<Tensor> decode_tensors(const Json& document) {
  const TableReader table(document, "tensors");
  const auto dtypes = table.numbers<std::uint8_t>("dtype");
  const std::size_t count = dtypes.size();
  const auto names = table.texts("name", count);
  const auto layouts = table.numbers<std::uint8_t>("layout", count);
  const auto flags = table.numbers<std::uint8_t>("flags", count);
  const auto dims = table.numbers<std::uint8_t>("dims", count);
  const auto offsets = table.numbers<std::uint64_t>("offset", count);
  const auto shapes = table.numbers<std::int64_t>("shape");
  const auto strides = table.numbers<std::int64_t>("stride");
  const auto global_shapes = table.numbers<std::int64_t>("global_shape");
  const auto global_offsets = table.numbers<std::int64_t>("global_offset");

  std::size_t shape_at = 0, stride_at = 0, global_at = 0, offset_at = 0;
  std::vector<Tensor> tensors(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (dtypes[i] >= dtype_count) table.fail("dtype", "has an unknown value");
    if (layouts[i] >= layout_count) table.fail("layout", "has an unknown value");
    if ((flags[i] & ~known_tensor_flags) != 0) table.fail("flags", "has an unknown value");
    Tensor& tensor = tensors[i];
    tensor.name = names[i];
    tensor.dtype = static_cast<DType>(dtypes[i]);
    tensor.layout = static_cast<Layout>(layouts[i]);
    tensor.has_bytes = (flags[i] & has_bytes) != 0;
    tensor.conjugate = (flags[i] & conjugate) != 0;
    tensor.negative = (flags[i] & negated) != 0;
    tensor.offset = offsets[i];
    tensor.shape = take_numbers(shapes, shape_at, dims[i]);
    tensor.strides = take_numbers(strides, stride_at, dims[i]);
    if ((flags[i] & sharded) != 0) {
      tensor.global_shape = take_numbers(global_shapes, global_at, dims[i]);
      tensor.global_offsets = take_numbers(global_offsets, offset_at, dims[i]);
    }
  }
  if (shape_at != shapes.size() || stride_at != strides.size() || global_at != global_shapes.size() ||
      offset_at != global_offsets.size()) {
    refuse_catalog("a column of shapes is too long");
  }
  return tensors;
}

Json encode_extents(const std::vector<Extent>& extents) {
  std::vector<std::uint64_t> offsets, sizes;
  std::vector<std::uint8_t> dtypes;
  for (const Extent& extent : extents) {
    offsets.push_back(extent.offset);
    sizes.push_back(extent.size);
    dtypes.push_back(static_cast<std::uint8_t>(extent.dtype));
  }
  TableWriter table;
  table.add("offset", offsets);
  table.add("size", sizes);
  table.add("dtype", dtypes);
  return std::move(table).take();
}

std::vector<Extent> decode_extents(const Json& document) {
  const TableReader table(document, "extents");
  const auto offsets = table.numbers<std::uint64_t>("offset");
  const auto sizes = table.numbers<std::uint64_t>("size", offsets.size());
  const auto dtypes = table.numbers<std::uint8_t>("dtype", offsets.size());
  std::vector<Extent> extents(offsets.size());
  for (std::size_t i = 0; i < extents.size(); ++i) {
    if (dtypes[i] >= dtype_count) table.fail("dtype", "has an unknown value");
    extents[i] = {.offset = offsets[i], .size = sizes[i], .dtype = static_cast<DType>(dtypes[i])};
  }
  return extents;
}

Json encode_bases(const std::vector<BaseCheckpoint>& bases) {
  Bytes ids;
  std::vector<std::uint64_t> steps;
  for (const BaseCheckpoint& base : bases) {
    append(ids, base.id.bytes);
    steps.push_back(base.step);
  }
  TableWriter table;
  table.add_bytes("id", ids);
  table.add("step", steps);
  return std::move(table).take();
}

/// The table is there only where blocks may have bases.
std::vector<BaseCheckpoint> decode_bases(const Json& document) {
  if (!document.contains("bases")) return {};
  const TableReader table(document, "bases");
  const auto steps = table.numbers<std::uint64_t>("step");
  const ByteView ids = table.bytes("id");
  if (ids.size() != steps.size() * sizeof(Digest)) table.fail("id", "has another number of rows");
  std::vector<BaseCheckpoint> bases(steps.size());
  for (std::size_t i = 0; i < bases.size(); ++i) {
    std::copy_n(ids.data() + i * sizeof(Digest), sizeof(Digest), bases[i].id.bytes.begin());
    bases[i].step = steps[i];
  }
  return bases;
}

/// Gives each file its range of a list and checks that the ranges end where the list ends.
template <auto First, auto Count>
void deal_out(std::vector<FileEntry>& files, std::size_t available, const char* what) {
  std::uint64_t next = 0;
  for (FileEntry& file : files) {
    file.*First = next;
    if (file.*Count > available - next) refuse_catalog(std::string("more ") + what + " than there are");
    next += file.*Count;
  }
  if (next != available) refuse_catalog(std::string("some ") + what + " belong to no file");
}

void check_file(const Catalog& catalog, const FileEntry& file) {
  const auto bad = [&](const std::string& why) { refuse_catalog("file '" + file.path + "': " + why); };
  if (file.type != EntryType::file &&
      (file.size != 0 || file.block_count != 0 || file.extent_count != 0 || file.tensor_count != 0)) {
    bad("only a file has content");
  }
  if (file.type == EntryType::symlink && !stays_inside(file.path, file.target)) bad("a symlink that leaves the tree");

  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < file.block_count; ++i) {
    const std::uint64_t size = catalog.block_sizes[file.first_block + i];
    if (size == 0 || size > block_size) bad("a block of impossible size");
    total += size;
  }
  if (total != file.size) bad("its blocks don't add up to its size");

  std::uint64_t end = 0;
  for (std::uint64_t i = 0; i < file.extent_count; ++i) {
    const Extent& extent = catalog.extents[file.first_extent + i];
    if (extent.size == 0 || extent.offset < end || !lies_within(extent.offset, extent.size, file.size)) {
      bad("extents that overlap or leave the file");
    }
    end = extent.offset + extent.size;
  }
  for (std::uint64_t i = 0; i < file.tensor_count; ++i) {
    const Tensor& tensor = catalog.tensors[file.first_tensor + i];
    for (const std::int64_t dim : tensor.shape) {
      if (dim < 0) bad("tensor '" + tensor.name + "' has a negative dimension");
    }
    if (!tensor.has_bytes) continue;
    const auto view = view_end(tensor);
    if (!view || tensor.offset > file.size || *view > file.size) bad("tensor '" + tensor.name + "' leaves the file");
  }
}

}  // namespace

std::string_view name_of(EntryType type) {
  constexpr std::array<std::string_view, 4> names = {"file", "directory", "symlink", "hardlink"};
  return names.at(static_cast<std::size_t>(type));
}

std::uint64_t Catalog::raw_bytes() const {
  std::uint64_t total = 0;
  for (const FileEntry& file : files) total += file.size;
  return total;
}

Bytes encode_catalog(const Catalog& catalog) {
  TableWriter blocks;
  blocks.add("size", catalog.block_sizes);
  Json document = {{"shard", encode_shard(catalog.shard)},
                   {"files", encode_files(catalog.files)},
                   {"extents", encode_extents(catalog.extents)},
                   {"tensors", encode_tensors(catalog.tensors)},
                   {"blocks", std::move(blocks).take()}};
  if (!catalog.bases.empty()) document["bases"] = encode_bases(catalog.bases);
  return dump_cbor(document);
}

Catalog decode_catalog(ByteView data) {
  const Json document = parse_cbor(data, "catalog");
  Catalog catalog;
  catalog.shard = decode_shard(document);
  catalog.files = decode_files(document);
  catalog.extents = decode_extents(document);
  catalog.tensors = decode_tensors(document);
  catalog.block_sizes = TableReader(document, "blocks").numbers<std::uint64_t>("size");
  catalog.bases = decode_bases(document);
  deal_out<&FileEntry::first_block, &FileEntry::block_count>(catalog.files, catalog.block_sizes.size(), "blocks");
  deal_out<&FileEntry::first_extent, &FileEntry::extent_count>(catalog.files, catalog.extents.size(), "extents");
  deal_out<&FileEntry::first_tensor, &FileEntry::tensor_count>(catalog.files, catalog.tensors.size(), "tensors");
  check_paths(catalog.files);
  for (const FileEntry& file : catalog.files) check_file(catalog, file);
  return catalog;
}

CatalogSummary decode_catalog_summary(ByteView data) {
  const Json document = parse_cbor(data, "catalog");
  CatalogSummary summary;
  summary.shard = decode_shard(document);
  summary.tensors = TableReader(document, "tensors").numbers<std::uint8_t>("dtype").size();
  const auto sizes = TableReader(document, "files").numbers<std::uint64_t>("size");
  summary.files = sizes.size();
  for (const std::uint64_t size : sizes) summary.raw_bytes += size;
  summary.bases = decode_bases(document);
  return summary;
}

std::vector<std::uint64_t> cut_into_blocks(std::uint64_t file_size, const std::vector<Extent>& extents) {
  std::vector<std::uint64_t> blocks;
  std::uint64_t shared = 0;  // bytes of small neighbours gathered so far
  const auto close_shared = [&] {
    if (shared > 0) blocks.push_back(std::exchange(shared, 0));
  };
  const auto add_piece = [&](std::uint64_t size) {
    if (size < share_limit) {
      if (shared + size > block_size) close_shared();
      shared += size;
      return;
    }
    close_shared();
    for (; size > 0; size -= blocks.back()) blocks.push_back(std::min(size, block_size));
  };
  std::uint64_t at = 0;
  for (const Extent& extent : extents) {
    add_piece(extent.offset - at);
    add_piece(extent.size);
    at = extent.offset + extent.size;
  }
  add_piece(file_size - at);
  close_shared();
  return blocks;
}

}  // namespace ckpt::format

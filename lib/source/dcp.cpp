// SPDX-License-Identifier: Apache-2.0
// The items of one .distcp file, with what the .metadata says about them, each parsed as the torch zip that it is.
#include "source/dcp.hpp"

#include "os/small_file.hpp"
#include "source/pickle_reader.hpp"
#include "source/torch_sharding.hpp"
#include "source/torch_zip.hpp"
#include "source/unique_names.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::source {
namespace {

struct Item {
  std::string name;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::vector<std::int64_t> global_shape;  ///< empty and `tensor` false: not a tensor
  std::vector<std::int64_t> offsets;
  bool tensor = false;
};

struct Metadata {
  Bytes bytes;
  PickleResult pickle;
};

std::optional<Metadata> read_metadata(const Input& input) {
  if (input.size() == 0 || input.size() > max_pickle_bytes) return std::nullopt;
  Metadata metadata;
  metadata.bytes.resize(static_cast<std::size_t>(input.size()));
  input.read(0, metadata.bytes);
  metadata.pickle = read_pickle(metadata.bytes);
  if (metadata.pickle.status != PickleStatus::complete) return std::nullopt;
  const Pickle& pickle = metadata.pickle.pickle;
  if (pickle.name(pickle.callee(pickle.root())) != "Metadata") return std::nullopt;
  if (!pickle.is(pickle.attribute(pickle.root(), "storage_data"), NodeKind::dict)) return std::nullopt;
  return metadata;
}

/// What the metadata say about one name: a tensor's global shape and its chunks, or nothing for other values.
using States = std::map<std::string_view, NodeId>;

States states_of(const Pickle& pickle) {
  States states;
  const NodeId dict = pickle.attribute(pickle.root(), "state_dict_metadata");
  for (std::uint32_t at = pickle.first_cell(dict); at != no_node; at = pickle.cell(at).next) {
    const Cell& cell = pickle.cell(at);
    if (pickle.is(cell.key, NodeKind::text)) states[pickle.text(cell.key)] = cell.value;
  }
  return states;
}

/// One entry of the storage data; nothing if it's of another file or not understood.
std::optional<Item> item_of(const Pickle& pickle, const Cell& cell, const States& states, std::string_view file) {
  const NodeId where = cell.value;
  if (os::last_name_of(pickle.text(pickle.attribute(where, "relative_path"))) != file) return std::nullopt;
  const NodeId offset = pickle.attribute(where, "offset");
  const NodeId length = pickle.attribute(where, "length");
  if (!pickle.is(offset, NodeKind::integer) || !pickle.is(length, NodeKind::integer)) return std::nullopt;
  if (pickle.integer(offset) < 0 || pickle.integer(length) < 0) return std::nullopt;
  const NodeId name = pickle.attribute(cell.key, "fqn");
  if (!pickle.is(name, NodeKind::text)) return std::nullopt;

  Item item;
  item.name = pickle.text(name);
  item.begin = static_cast<std::uint64_t>(pickle.integer(offset));
  item.end = item.begin + static_cast<std::uint64_t>(pickle.integer(length));
  const auto state = states.find(pickle.text(name));
  if (state == states.end()) return item;
  const auto shape = integers(pickle, pickle.attribute(state->second, "size"));
  if (!shape) return item;
  item.tensor = true;
  const auto offsets = integers(pickle, pickle.attribute(cell.key, "offset"));
  if (!offsets || offsets->size() != shape->size()) return item;
  item.global_shape = *shape;
  item.offsets = *offsets;
  return item;
}

std::vector<Item> items_of(const Pickle& pickle, std::string_view file) {
  const States states = states_of(pickle);
  std::vector<Item> items;
  const NodeId storage = pickle.attribute(pickle.root(), "storage_data");
  for (std::uint32_t at = pickle.first_cell(storage); at != no_node; at = pickle.cell(at).next) {
    if (auto item = item_of(pickle, pickle.cell(at), states, file)) items.push_back(std::move(*item));
  }
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) { return a.begin < b.begin; });
  return items;
}

/// Without metadata: every archive tells where it starts, and there the one before it ends.
std::optional<std::vector<Item>> walk_zips(const Input& input) {
  constexpr std::size_t most_items = std::size_t{1} << 20U;
  std::vector<Item> items;
  std::uint64_t end = input.size();
  while (end > 0 && items.size() < most_items) {
    const auto begin = find_zip_begin(input, end);
    if (!begin || *begin == end) break;
    Item item;
    item.begin = *begin;
    item.end = end;
    items.push_back(std::move(item));
    end = *begin;
  }
  if (items.empty()) return std::nullopt;
  std::reverse(items.begin(), items.end());
  return items;
}

bool begins_like_zip(const Input& input, std::uint64_t at, std::uint64_t end) {
  if (end - at < 4) return false;
  std::byte signature[4];
  input.read(at, signature);
  return load_le<std::uint32_t>(signature) == 0x04034b50;
}

void set_global(Tensor& tensor, Item& item) {
  if (item.global_shape.size() != tensor.shape.size()) return;
  tensor.global_shape = std::move(item.global_shape);
  tensor.global_offsets = std::move(item.offsets);
}

Verdict parse_item(const Input& input, Item& item, UniqueNames& names, Parsed& to) {
  if (!begins_like_zip(input, item.begin, item.end)) {
    to.note = "items that aren't torch zips are kept as they are";
    return {};
  }
  ZipResult zip = read_zip_directory(input, item.begin, item.end);
  if (zip.status != ZipStatus::complete) return verdict_of(std::move(zip));
  const std::size_t before = to.tensors.size();
  Verdict verdict = parse_torch_archive(input, zip.directory, item.name, names, to);
  if (verdict.kind == Verdict::Kind::foreign) {
    to.note = "items that aren't torch zips are kept as they are";
    return {};
  }
  if (verdict.is_fine() && item.tensor && to.tensors.size() > before) set_global(to.tensors[before], item);
  return verdict;
}

std::string metadata_beside(std::string_view path) {
  return std::string(path.substr(0, path.size() - os::last_name_of(path).size())) + ".metadata";
}

/// The items of a file; nothing if there's none.
std::optional<std::vector<Item>> find_items(std::string_view path, const Input& input, const Siblings& siblings,
                                            std::string& note) {
  if (const std::shared_ptr<const Input> beside = siblings.open(metadata_beside(path))) {
    if (const auto metadata = read_metadata(*beside)) {
      std::vector<Item> items = items_of(metadata->pickle.pickle, os::last_name_of(path));
      if (!items.empty()) return items;
    } else {
      note = "the .metadata beside it isn't understood";
    }
  }
  auto walked = walk_zips(input);
  if (walked && walked->front().begin > 0 && note.empty())
    note = "its first bytes are no torch zip and are kept as they are";
  return walked;
}

}  // namespace

bool is_dcp_metadata(const Input& input) { return read_metadata(input).has_value(); }

std::vector<DcpItem> find_dcp_items(std::string_view path, const Input& input, const Siblings& siblings) {
  std::string unused;
  std::vector<DcpItem> found;
  std::uint64_t end = 0;
  for (Item& item : find_items(path, input, siblings, unused).value_or(std::vector<Item>{})) {
    // Overlapping items would make the work unbounded.
    if (item.begin < end || item.end > input.size() || !begins_like_zip(input, item.begin, item.end)) continue;
    end = item.end;
    found.push_back({.name = std::move(item.name), .begin = item.begin, .end = item.end, .tensor = item.tensor});
  }
  return found;
}

Verdict parse_distcp(std::string_view path, const Input& input, const Siblings& siblings, Parsed& to) {
  auto found = find_items(path, input, siblings, to.note);
  if (!found) return Verdict::malformed("cut short: there's no zip at its end");
  std::vector<Item>& items = *found;

  UniqueNames names;
  std::uint64_t end = 0;
  for (Item& item : items) {
    if (item.end > input.size()) {
      return Verdict::malformed("cut short: item '" + item.name + "' should end at offset " + std::to_string(item.end));
    }
    // Overlapping items would make the work unbounded.
    if (item.begin < end) return Verdict::malformed("altered: items overlap, at offset " + std::to_string(item.begin));
    end = item.end;
    const Verdict verdict = parse_item(input, item, names, to);
    if (!verdict.is_fine()) return verdict;
  }
  return {};
}

}  // namespace ckpt::source

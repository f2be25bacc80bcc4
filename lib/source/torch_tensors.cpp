// SPDX-License-Identifier: Apache-2.0
// The walk: a stack of frames, each a container that is being looked through. Calls that PyTorch is known to rebuild
// tensors with become tensors; every other call is looked into like a container. Long for one file, since each of
// these calls is a few lines of one mutual recursion over the same path, frames and lists.
#include "source/torch_tensors.hpp"

#include "source/hash_index.hpp"
#include "source/python_text.hpp"
#include "source/torch_sharding.hpp"
#include "source/torch_types.hpp"

#include <algorithm>
#include <utility>

namespace ckpt::source {
namespace {

constexpr std::size_t max_walk_depth = 10'000;
constexpr std::size_t max_name = std::size_t{16} << 10U;
constexpr std::size_t max_all_names = std::size_t{128} << 20U;
constexpr unsigned max_wrapping = 32;  ///< calls around one tensor
constexpr std::size_t max_tensors = std::size_t{4} << 20U;

struct Refused {
  const char* what;
};

/// ("storage", class, key, location, elements[, (view key, offset, size)])
std::optional<Storage> parse_storage(const Pickle& pickle, NodeId persistent, std::uint64_t& view_offset) {
  if (!pickle.is(persistent, NodeKind::persistent)) return std::nullopt;
  const auto id = pickle.items(pickle.callee(persistent));
  if (id.size() < 5 || pickle.text(id[0]) != "storage" || !pickle.is(id[1], NodeKind::global)) return std::nullopt;
  if (!pickle.is(id[2], NodeKind::text) || !pickle.is(id[4], NodeKind::integer) || pickle.integer(id[4]) < 0) {
    return std::nullopt;
  }
  if (id.size() > 5) {
    const std::int64_t offset = pickle.integer(pickle.item(id[5], 1));
    if (offset < 0) return std::nullopt;
    view_offset = static_cast<std::uint64_t>(offset);
  }
  const DType dtype = dtype_of_storage(pickle.name(id[1]));
  return Storage{pickle.text(id[2]), dtype, dtype, static_cast<std::uint64_t>(pickle.integer(id[4]))};
}

class TensorWalk {
 public:
  TensorWalk(const Pickle& pickle, const TreeOptions& options, std::vector<Tensor>& tensors)
      : pickle_(pickle),
        options_(options),
        tensors_(tensors),
        visited_(pickle.node_count()),
        keys_(pickle.byte_count() / 16) {
    tree_.first = tensors.size();
    // A tensor takes some hundred bytes of pickle; for few of them growing costs nothing.
    constexpr std::size_t many = std::size_t{1} << 20U;
    if (pickle.byte_count() > many) {
      const std::size_t most = std::min(pickle.byte_count() / 96, max_tensors);
      tensors.reserve(tensors.size() + most);
      advise_huge(tensors);
      tree_.storage_of.reserve(most);
      tree_.storages.reserve(most);
    }
  }

  TensorTree run() {
    path_ = options_.prefix;
    try {
      visit(pickle_.root(), 0);
      while (!frames_.empty()) advance();
    } catch (const Refused& refused) {
      tree_.refused = refused.what;
    }
    return std::move(tree_);
  }

 private:
  enum class Mode : std::uint8_t { items, cells, pairs };

  struct Frame {
    NodeId node;
    Mode mode;
    std::uint32_t cursor;
    std::uint32_t index;
    std::string path;
  };

  void advance();
  void visit(NodeId id, unsigned wrapping);
  void visit_object(NodeId id, unsigned wrapping);
  void visit_state(NodeId state, unsigned wrapping);
  void push(NodeId id, Mode mode);
  void push_contents(NodeId id);

  void rebuild(Rebuild kind, NodeId args, NodeId state, unsigned wrapping);
  void rebuild_from_type(NodeId args, NodeId outer_state, unsigned wrapping);
  void rebuild_wrapper(NodeId args, NodeId state, unsigned wrapping);
  void rebuild_view(Rebuild kind, NodeId args, unsigned wrapping);
  void rebuild_sparse(NodeId args, unsigned wrapping);
  void rebuild_nested(NodeId args, unsigned wrapping);
  void rebuild_sharded(NodeId state, unsigned wrapping);
  void rebuild_bytes_less(NodeId dtype, NodeId size);
  void visit_storage(NodeId id);
  void visit_parts(std::string_view name, std::initializer_list<std::pair<std::string_view, NodeId>> parts,
                   unsigned wrapping);

  void add(Tensor&& tensor, std::uint32_t storage);
  /// Of the tensor that was added last.
  [[nodiscard]] std::string last_name() const { return tensors_.back().name; }
  std::uint32_t storage_of(NodeId persistent, std::uint64_t& view_offset);
  [[nodiscard]] DType dtype_named(NodeId global) const;
  [[nodiscard]] DType dtype_of_tensor(NodeId object) const;
  [[nodiscard]] std::optional<std::vector<std::int64_t>> shape_of_tensor(NodeId object) const;
  [[nodiscard]] DType settled(DType dtype) const { return options_.big_endian ? width_only(dtype) : dtype; }
  Rebuild rebuild_of_callee(NodeId global);

  void append_key(std::string_view key) {
    if (!path_.empty()) path_ += '.';
    path_ += key.empty() ? std::string_view("\"\"") : key;
    if (path_.size() > max_name) throw Refused{"a tensor's name would be longer than 16 KiB"};
  }

  const Pickle& pickle_;
  const TreeOptions& options_;
  std::vector<Tensor>& tensors_;
  TensorTree tree_;
  std::vector<bool> visited_;
  std::vector<Frame> frames_;
  std::string path_;
  std::size_t all_names_ = 0;
  KeyIndex keys_;
  const Sharding* sharding_ = nullptr;
  NodeId last_callee_ = no_node;
  Rebuild last_rebuild_ = Rebuild::unknown;
};

Rebuild TensorWalk::rebuild_of_callee(NodeId global) {
  if (global != last_callee_) {
    last_callee_ = global;
    last_rebuild_ = pickle_.is(global, NodeKind::global) ? rebuild_of(pickle_.module(global), pickle_.name(global))
                                                         : Rebuild::unknown;
  }
  return last_rebuild_;
}

void TensorWalk::push(NodeId id, Mode mode) {
  if (frames_.size() >= max_walk_depth) throw Refused{"containers are nested deeper than 10,000"};
  const std::uint32_t cursor = mode == Mode::items ? 0 : pickle_.first_cell(id);
  frames_.push_back({id, mode, cursor, 0, path_});
}

void TensorWalk::push_contents(NodeId id) {
  if (pickle_.first_cell(id) != no_node) push(id, Mode::cells);
}

void TensorWalk::advance() {
  Frame& frame = frames_.back();
  path_ = frame.path;
  if (frame.mode == Mode::items) {
    const NodeId child = pickle_.item(frame.node, frame.cursor);
    if (frame.cursor >= pickle_.items(frame.node).size()) {
      frames_.pop_back();
      return;
    }
    const NodeKind kind = pickle_.kind(child);
    if (kind > NodeKind::bytes) append_key(std::to_string(frame.cursor));
    ++frame.cursor;
    return visit(child, 0);
  }
  if (frame.cursor == no_node) {
    frames_.pop_back();
    return;
  }
  const Cell cell = pickle_.cell(frame.cursor);
  NodeId key = cell.key;
  NodeId value = cell.value;
  if (frame.mode == Mode::pairs) {
    // [[key, value], ...] as lists or tuples.
    const std::uint32_t first = pickle_.first_cell(value);
    const std::uint32_t second = first == no_node ? no_node : pickle_.cell(first).next;
    key = second == no_node ? pickle_.item(value, 0) : pickle_.cell(first).value;
    value = second == no_node ? pickle_.item(value, 1) : pickle_.cell(second).value;
  }
  frame.cursor = cell.next;
  const std::uint32_t index = frame.index++;
  // Plain values have no tensors below them: their names are never needed.
  if (pickle_.kind(value) <= NodeKind::bytes) return;
  if (key == no_node) {
    append_key(std::to_string(index));
  } else if (pickle_.is(key, NodeKind::text)) {
    append_key(pickle_.text(key));
  } else {
    const auto text = python_str(pickle_, key);
    if (!text) throw Refused{"a key is too long"};
    append_key(*text);
  }
  visit(value, 0);
}

void TensorWalk::visit(NodeId id, unsigned wrapping) {
  if (wrapping > max_wrapping) throw Refused{"a tensor is wrapped too often"};
  switch (pickle_.kind(id)) {
    case NodeKind::persistent: return visit_storage(id);
    case NodeKind::object: return visit_object(id, wrapping);
    case NodeKind::tuple:
      if (visited_[id]) return;
      visited_[id] = true;
      return push(id, Mode::items);
    case NodeKind::list:
    case NodeKind::dict:
    case NodeKind::set:
      if (visited_[id]) return;
      visited_[id] = true;
      return push_contents(id);
    default: return;
  }
}

void TensorWalk::visit_object(NodeId id, unsigned wrapping) {
  const NodeId callee = pickle_.callee(id);
  const NodeId args = pickle_.args(id);
  const NodeId state = pickle_.state(id);
  const Rebuild kind = rebuild_of_callee(callee);
  if (kind != Rebuild::unknown && kind < Rebuild::content) return rebuild(kind, args, state, wrapping);

  if (visited_[id]) return;
  visited_[id] = true;
  const std::string_view name = pickle_.name(callee);
  if (name == "ShardedTensor" && pickle_.module(callee).starts_with("torch.")) return rebuild_sharded(state, wrapping);
  // Frames are a stack: what is pushed last is looked at first.
  visit_state(state, wrapping + 1);
  push_contents(id);
  switch (kind) {
    case Rebuild::content: return visit(pickle_.item(args, 0), wrapping + 1);
    case Rebuild::pairs: {
      const NodeId last = pickle_.items(args).empty() ? no_node : pickle_.items(args).back();
      if (pickle_.is(last, NodeKind::list) && !visited_[last]) {
        visited_[last] = true;
        return push(last, Mode::pairs);
      }
      return visit(last, wrapping + 1);
    }
    case Rebuild::reconstructor: return visit(pickle_.item(args, 2), wrapping + 1);
    case Rebuild::size:
    case Rebuild::layout: return;
    default: return visit(args, wrapping + 1);
  }
}

void TensorWalk::visit_state(NodeId state, unsigned wrapping) {
  const auto items = pickle_.items(state);
  const auto is_part = [&](NodeId id) { return pickle_.is(id, NodeKind::none) || pickle_.is(id, NodeKind::dict); };
  if (items.size() == 2 && is_part(items[0]) && is_part(items[1])) {
    visit(items[1], wrapping);
    visit(items[0], wrapping);
    return;
  }
  visit(state, wrapping);
}

void TensorWalk::rebuild(Rebuild kind, NodeId args, NodeId state, unsigned wrapping) {
  switch (kind) {
    case Rebuild::tensor:
    case Rebuild::tensor_v3:
    case Rebuild::quantized: rebuild_view(kind, args, wrapping); break;
    case Rebuild::parameter: visit(pickle_.item(args, 0), wrapping + 1); break;
    case Rebuild::parameter_state:
      visit(pickle_.item(args, 0), wrapping + 1);
      visit_state(pickle_.item(args, 3), wrapping + 1);
      break;
    case Rebuild::sparse: return rebuild_sparse(args, wrapping);
    case Rebuild::nested:
    case Rebuild::jagged: return rebuild_nested(kind == Rebuild::jagged ? pickle_.item(args, 0) : args, wrapping);
    case Rebuild::meta: return rebuild_bytes_less(pickle_.item(args, 0), pickle_.item(args, 1));
    case Rebuild::from_numpy:
      // (version, shape, ...) is the array's state.
      return rebuild_bytes_less(pickle_.item(args, 1), pickle_.item(pickle_.state(pickle_.item(args, 0)), 1));
    case Rebuild::wrapper_subclass: return rebuild_wrapper(args, state, wrapping);
    case Rebuild::from_type: return rebuild_from_type(args, state, wrapping);
    default: break;
  }
  visit_state(state, wrapping + 1);
}

void TensorWalk::rebuild_from_type(NodeId args, NodeId outer_state, unsigned wrapping) {
  const Rebuild kind = rebuild_of_callee(pickle_.item(args, 0));
  const NodeId inner = pickle_.item(args, 2);
  const NodeId state = pickle_.item(args, 3);
  const std::string path = path_;
  if (kind == Rebuild::wrapper_subclass) {
    rebuild_wrapper(inner, state, wrapping + 1);
  } else if (kind != Rebuild::unknown && kind < Rebuild::content && kind != Rebuild::from_type) {
    rebuild(kind, inner, no_node, wrapping + 1);
    path_ = path;
    // A ragged tensor's state holds its parts once more.
    if (kind != Rebuild::jagged) visit_state(state, wrapping + 1);
  } else {
    visit_state(state, wrapping + 1);
    visit(inner, wrapping + 1);
  }
  path_ = path;
  visit_state(outer_state, wrapping + 1);
}

void TensorWalk::rebuild_wrapper(NodeId args, NodeId state, unsigned wrapping) {
  const NodeId type = pickle_.item(args, 0);
  const auto shape = integers(pickle_, pickle_.item(args, 2));
  if (!shape) {
    ++tree_.not_understood;
    return visit_state(state, wrapping + 1);
  }
  const std::string_view name = pickle_.module(type).starts_with("torch.") ? pickle_.name(type) : std::string_view{};
  if (name == "ShardedTensor") return rebuild_sharded(state, wrapping + 1);

  const NodeId local = pickle_.attribute_in(state, "_local_tensor");
  if (name == "DTensor" && local != no_node) {
    const auto local_shape = shape_of_tensor(local);
    const auto sharding = local_shape
                              ? sharding_of_spec(pickle_, pickle_.attribute_in(state, "_spec"), *shape, *local_shape)
                              : std::nullopt;
    const Sharding* const outer = std::exchange(sharding_, sharding ? &*sharding : nullptr);
    visit(local, wrapping + 1);
    sharding_ = outer;
    return;
  }

  Tensor tensor;
  tensor.dtype = settled(dtype_named(pickle_.item(args, 1)));
  tensor.has_bytes = false;
  tensor.shape = *shape;
  tensor.strides = contiguous_strides(tensor.shape);
  tensor.layout = layout_from_torch(pickle_.text(pickle_.item(pickle_.args(pickle_.item(args, 5)), 0)));
  add(std::move(tensor), TensorTree::no_storage);
  path_ = last_name();
  visit_state(state, wrapping + 1);
}

void TensorWalk::rebuild_view(Rebuild kind, NodeId args, unsigned wrapping) {
  Tensor tensor;
  auto shape = integers(pickle_, pickle_.item(args, 2));
  auto strides = integers(pickle_, pickle_.item(args, 3));
  const NodeId offset = pickle_.item(args, 1);
  std::uint64_t view_offset = 0;
  const std::uint32_t storage = storage_of(pickle_.item(args, 0), view_offset);
  if (storage == TensorTree::no_storage || !shape || !strides || shape->size() != strides->size() ||
      !pickle_.is(offset, NodeKind::integer) || pickle_.integer(offset) < 0) {
    ++tree_.not_understood;
    return;
  }
  Storage& on = tree_.storages[storage];
  tensor.dtype = kind == Rebuild::tensor_v3 ? dtype_named(pickle_.item(args, 6)) : on.stated;
  tensor.dtype = settled(tensor.dtype);
  tensor.layout = kind == Rebuild::quantized ? Layout::quantized : Layout::strided;
  tensor.shape = std::move(*shape);
  tensor.strides = std::move(*strides);
  tensor.offset = static_cast<std::uint64_t>(pickle_.integer(offset)) + view_offset;
  const NodeId metadata = pickle_.item(args, kind == Rebuild::tensor_v3 ? 7 : 6);
  if (kind != Rebuild::quantized && pickle_.is(metadata, NodeKind::dict)) {
    tensor.conjugate = pickle_.integer(pickle_.lookup(metadata, "conj")) != 0;
    tensor.negative = pickle_.integer(pickle_.lookup(metadata, "neg")) != 0;
  }
  if (on.dtype == DType::opaque || on.dtype == DType::uint8) on.dtype = tensor.dtype;
  add(std::move(tensor), storage);
  if (kind != Rebuild::quantized) return;
  const std::string name = last_name();
  const NodeId quantizer = pickle_.item(args, 4);
  visit_parts(name, {{"scale", pickle_.item(quantizer, 1)}, {"zero_point", pickle_.item(quantizer, 2)}}, wrapping);
}

void TensorWalk::visit_parts(std::string_view name, std::initializer_list<std::pair<std::string_view, NodeId>> parts,
                             unsigned wrapping) {
  const Sharding* const outer = std::exchange(sharding_, nullptr);
  const std::string before = path_;
  for (const auto& [part, id] : parts) {
    path_ = name;
    append_key(part);
    if (pickle_.kind(id) == NodeKind::object) visit(id, wrapping + 1);
  }
  path_ = before;
  sharding_ = outer;
}

void TensorWalk::rebuild_sparse(NodeId args, unsigned wrapping) {
  const NodeId parts = pickle_.item(args, 1);
  Tensor tensor;
  tensor.layout = layout_from_torch(pickle_.text(pickle_.item(pickle_.args(pickle_.item(args, 0)), 0)));
  const bool coo = tensor.layout == Layout::sparse_coo;
  const std::size_t values_at = coo ? 1 : 2;
  const NodeId values = pickle_.item(parts, values_at);
  const auto shape = integers(pickle_, pickle_.item(parts, values_at + 1));
  if (!shape || tensor.layout == Layout::strided) {
    ++tree_.not_understood;
    return;
  }
  tensor.dtype = settled(dtype_of_tensor(values));
  tensor.has_bytes = false;
  tensor.shape = *shape;
  tensor.strides = contiguous_strides(tensor.shape);
  const bool rows = tensor.layout == Layout::sparse_csr || tensor.layout == Layout::sparse_bsr;
  add(std::move(tensor), TensorTree::no_storage);
  const std::string name = last_name();
  if (coo) return visit_parts(name, {{"indices", pickle_.item(parts, 0)}, {"values", values}}, wrapping);
  visit_parts(name,
              {{rows ? "crow_indices" : "ccol_indices", pickle_.item(parts, 0)},
               {rows ? "col_indices" : "row_indices", pickle_.item(parts, 1)},
               {"values", values}},
              wrapping);
}

void TensorWalk::rebuild_nested(NodeId args, unsigned wrapping) {
  const bool jagged = pickle_.is(args, NodeKind::dict);
  const NodeId values = jagged ? pickle_.lookup(args, "values") : pickle_.item(args, 0);
  const NodeId sizes = jagged ? pickle_.lookup(args, "offsets") : pickle_.item(args, 1);
  Tensor tensor;
  tensor.layout = Layout::nested;
  tensor.has_bytes = false;
  tensor.dtype = settled(dtype_of_tensor(values));
  // Only the number of its rows is fixed; a ragged one has one offset more than rows.
  const auto rows = shape_of_tensor(sizes);
  std::int64_t count = rows && !rows->empty() ? rows->front() : 0;
  if (jagged && count > 0) --count;
  tensor.shape = {count};
  tensor.strides = {1};
  add(std::move(tensor), TensorTree::no_storage);
  const std::string name = last_name();
  if (!jagged) {
    visit_parts(name,
                {{"buffer", values},
                 {"sizes", sizes},
                 {"strides", pickle_.item(args, 2)},
                 {"storage_offsets", pickle_.item(args, 3)}},
                wrapping);
    return;
  }
  visit_parts(name, {{"values", values}, {"offsets", sizes}, {"lengths", pickle_.lookup(args, "lengths")}}, wrapping);
}

void TensorWalk::rebuild_sharded(NodeId state, unsigned wrapping) {
  // (local shards, metadata, ...)
  const NodeId shards = pickle_.item(state, 0);
  const auto global_shape = integers(pickle_, pickle_.attribute(pickle_.item(state, 1), "size"));
  const std::string path = path_;
  for (std::uint32_t at = pickle_.first_cell(shards); at != no_node; at = pickle_.cell(at).next) {
    const NodeId shard = pickle_.cell(at).value;
    const auto offsets = integers(pickle_, pickle_.attribute(pickle_.attribute(shard, "metadata"), "shard_offsets"));
    Sharding sharding;
    const bool known = global_shape && offsets && offsets->size() == global_shape->size();
    if (known) sharding = {*global_shape, *offsets};
    const Sharding* const outer = std::exchange(sharding_, known ? &sharding : nullptr);
    path_ = path;
    visit(pickle_.attribute(shard, "tensor"), wrapping + 1);
    sharding_ = outer;
  }
}

void TensorWalk::rebuild_bytes_less(NodeId dtype, NodeId size) {
  const auto shape = integers(pickle_, size);
  if (!shape) {
    ++tree_.not_understood;
    return;
  }
  Tensor tensor;
  tensor.dtype = settled(dtype_named(dtype));
  tensor.has_bytes = false;
  tensor.shape = *shape;
  tensor.strides = contiguous_strides(tensor.shape);
  add(std::move(tensor), TensorTree::no_storage);
}

void TensorWalk::visit_storage(NodeId id) {
  std::uint64_t view_offset = 0;
  const std::uint32_t index = storage_of(id, view_offset);
  if (index == TensorTree::no_storage) return;
  const Storage& storage = tree_.storages[index];
  Tensor tensor;
  tensor.dtype = settled(storage.stated);
  if (storage.elements > static_cast<std::uint64_t>(INT64_MAX)) return;
  tensor.shape = {static_cast<std::int64_t>(storage.elements)};
  tensor.strides = {1};
  tensor.offset = 0;
  add(std::move(tensor), index);
}

std::uint32_t TensorWalk::storage_of(NodeId persistent, std::uint64_t& view_offset) {
  const auto storage = parse_storage(pickle_, persistent, view_offset);
  if (!storage) return TensorTree::no_storage;
  const auto index = static_cast<std::uint32_t>(tree_.storages.size());
  const std::uint32_t known =
      keys_.add(storage->key, index, [&](std::uint32_t i) { return tree_.storages[i].key == storage->key; });
  if (known != KeyIndex::absent) return known;
  tree_.storages.push_back(*storage);
  tree_.storages.back().dtype = settled(storage->dtype);
  return index;
}

DType TensorWalk::dtype_named(NodeId global) const {
  if (pickle_.module(global) != "torch") return DType::opaque;
  return dtype_from_name(pickle_.name(global)).value_or(DType::opaque);
}

DType TensorWalk::dtype_of_tensor(NodeId object) const {
  const NodeId callee = pickle_.callee(object);
  const NodeId args = pickle_.args(object);
  if (pickle_.name(callee) == "_rebuild_tensor_v3") return dtype_named(pickle_.item(args, 6));
  const NodeId type = pickle_.item(pickle_.callee(pickle_.item(args, 0)), 1);
  return dtype_of_storage(pickle_.name(type));
}

std::optional<std::vector<std::int64_t>> TensorWalk::shape_of_tensor(NodeId object) const {
  NodeId args = pickle_.args(object);
  for (unsigned i = 0; i < max_wrapping; ++i) {
    const std::string_view name = pickle_.name(pickle_.callee(object));
    if (name == "_rebuild_from_type_v2" || name == "_rebuild_from_type") {
      args = pickle_.item(args, 2);
      break;
    }
    if (name != "_rebuild_parameter" && name != "_rebuild_parameter_with_state") break;
    object = pickle_.item(args, 0);
    args = pickle_.args(object);
  }
  return integers(pickle_, pickle_.item(args, 2));
}

void TensorWalk::add(Tensor&& tensor, std::uint32_t storage) {
  // Every listing takes a byte of the pickle; only wrappers that share wrappers could multiply them.
  if (tensors_.size() - tree_.first >= std::min(pickle_.byte_count(), max_tensors))
    throw Refused{"there are too many tensors"};
  tensor.name = options_.names->claim(path_.empty() ? "(root)" : path_);
  all_names_ += tensor.name.size();
  if (all_names_ > max_all_names) throw Refused{"the tensors' names are longer than 128 MiB"};
  if (sharding_ != nullptr && sharding_->global_shape.size() == tensor.shape.size()) {
    tensor.global_shape = sharding_->global_shape;
    tensor.global_offsets = sharding_->offsets;
  }
  tensors_.push_back(std::move(tensor));
  tree_.storage_of.push_back(storage);
}

}  // namespace

HugeTable<Storage> storages_in(const Pickle& pickle) {
  HugeTable<Storage> storages;
  for (NodeId id = 0; id < pickle.node_count(); ++id) {
    std::uint64_t unused = 0;
    if (const auto storage = parse_storage(pickle, id, unused)) storages.push_back(*storage);
  }
  return storages;
}

TensorTree find_tensors(const Pickle& pickle, const TreeOptions& options, std::vector<Tensor>& tensors) {
  return TensorWalk(pickle, options, tensors).run();
}

}  // namespace ckpt::source

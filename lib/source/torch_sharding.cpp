// SPDX-License-Identifier: Apache-2.0
// Follows a DTensorSpec: each mesh dimension that shards a tensor dimension cuts what is left of it into chunks of
// the same rounded-up length, and the rank's coordinate picks one. The result must match the local shape, or nothing is
// claimed.
#include "source/torch_sharding.hpp"

#include <algorithm>

namespace ckpt::source {
namespace {

/// Extents of the device mesh; several releases keep it in different places.
std::optional<std::vector<std::int64_t>> mesh_shape(const Pickle& pickle, NodeId mesh) {
  const NodeId layout = pickle.attribute(mesh, "_layout");
  if (const auto flat = integers(pickle, pickle.attribute(layout, "shape"))) return flat;
  const NodeId axes = pickle.attribute(layout, "axes");
  if (pickle.is(axes, NodeKind::tuple) && pickle.items(axes).size() <= max_dimensions) {
    std::vector<std::int64_t> shape;
    for (const NodeId axis : pickle.items(axes)) {
      const auto part = integers(pickle, pickle.attribute(axis, "shape"));
      if (!part) return std::nullopt;
      std::int64_t extent = 1;
      for (const std::int64_t n : *part) {
        if (__builtin_mul_overflow(extent, n, &extent)) return std::nullopt;
      }
      shape.push_back(extent);
    }
    return shape;
  }
  // Before there was a layout, the mesh was a small tensor of ranks.
  for (const char* attribute : {"mesh", "_mesh"}) {
    const NodeId ranks = pickle.attribute(mesh, attribute);
    if (const auto shape = integers(pickle, pickle.item(pickle.args(ranks), 2))) return shape;
  }
  return std::nullopt;
}

/// An attribute of a placement, which is an object with a state or with arguments.
std::optional<std::int64_t> placement_number(const Pickle& pickle, NodeId placement, std::string_view key) {
  const NodeId value = pickle.attribute(placement, key);
  if (pickle.is(value, NodeKind::integer)) return pickle.integer(value);
  const NodeId first = pickle.item(pickle.args(placement), 0);
  if (key == "dim" && pickle.is(first, NodeKind::integer)) return pickle.integer(first);
  return std::nullopt;
}

struct Cut {
  std::size_t mesh_dim;
  std::size_t tensor_dim;
};

/// The cuts in the order in which they are made.
std::optional<std::vector<Cut>> cuts_of(const Pickle& pickle, NodeId placements, std::size_t mesh_dims,
                                        std::size_t tensor_dims) {
  const auto items = pickle.items(placements);
  if (!pickle.is(placements, NodeKind::tuple) || items.size() != mesh_dims) return std::nullopt;
  std::vector<Cut> cuts;
  std::vector<Cut> later;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string_view kind = pickle.name(pickle.callee(items[i]));
    if (kind != "Shard" && kind != "_StridedShard") continue;
    auto dim = placement_number(pickle, items[i], "dim");
    if (!dim) return std::nullopt;
    if (*dim < 0) *dim += static_cast<std::int64_t>(tensor_dims);
    if (*dim < 0 || *dim >= static_cast<std::int64_t>(tensor_dims)) return std::nullopt;
    // A strided shard on an outer mesh dimension stands for a cut made after the inner ones.
    (kind == "Shard" ? cuts : later).push_back({i, static_cast<std::size_t>(*dim)});
  }
  cuts.insert(cuts.end(), later.rbegin(), later.rend());
  return cuts;
}

}  // namespace

std::optional<std::vector<std::int64_t>> integers(const Pickle& pickle, NodeId id) {
  if (pickle.is(id, NodeKind::object) && pickle.name(pickle.callee(id)) == "Size") id = pickle.item(pickle.args(id), 0);
  std::vector<std::int64_t> numbers;
  const auto take = [&](NodeId value) {
    if (!pickle.is(value, NodeKind::integer) || pickle.integer(value) < 0) return false;
    numbers.push_back(pickle.integer(value));
    return numbers.size() <= max_dimensions;
  };
  if (pickle.is(id, NodeKind::tuple)) {
    if (pickle.items(id).size() > max_dimensions) return std::nullopt;
    numbers.reserve(pickle.items(id).size());
    for (const NodeId value : pickle.items(id)) {
      if (!take(value)) return std::nullopt;
    }
    return numbers;
  }
  if (!pickle.is(id, NodeKind::list)) return std::nullopt;
  for (std::uint32_t at = pickle.first_cell(id); at != no_node; at = pickle.cell(at).next) {
    if (!take(pickle.cell(at).value)) return std::nullopt;
  }
  return numbers;
}

std::optional<Sharding> sharding_of_spec(const Pickle& pickle, NodeId spec,
                                         const std::vector<std::int64_t>& global_shape,
                                         const std::vector<std::int64_t>& local_shape) {
  if (local_shape.size() != global_shape.size()) return std::nullopt;
  Sharding sharding{global_shape, std::vector<std::int64_t>(global_shape.size(), 0)};
  if (local_shape == global_shape) return sharding;

  const NodeId mesh = pickle.attribute(spec, "mesh");
  const auto shape = mesh_shape(pickle, mesh);
  const auto coordinate = integers(pickle, pickle.attribute(mesh, "_coordinate_on_dim"));
  if (!shape || !coordinate || coordinate->size() != shape->size()) return std::nullopt;
  const auto cuts = cuts_of(pickle, pickle.attribute(spec, "placements"), shape->size(), global_shape.size());
  if (!cuts) return std::nullopt;

  std::vector<std::int64_t> left = global_shape;
  for (const Cut& cut : *cuts) {
    const std::int64_t parts = (*shape)[cut.mesh_dim];
    const std::int64_t index = (*coordinate)[cut.mesh_dim];
    if (parts <= 0 || index >= parts) return std::nullopt;
    std::int64_t& length = left[cut.tensor_dim];
    const std::int64_t chunk = length / parts + (length % parts != 0 ? 1 : 0);
    // index * chunk can't pass length + chunk by much, but both are untrusted.
    std::int64_t start = 0;
    if (__builtin_mul_overflow(index, chunk, &start)) return std::nullopt;
    start = std::min(start, length);
    sharding.offsets[cut.tensor_dim] += start;
    length = std::min(chunk, length - start);
  }
  if (left != local_shape) return std::nullopt;
  return sharding;
}

}  // namespace ckpt::source

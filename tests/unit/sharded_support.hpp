// SPDX-License-Identifier: Apache-2.0
// Checkpoints whose shards hold parts of tensors as a test wants them: committed containers, put together by hand.
#pragma once

#include "core/tensor.hpp"
#include "ops/box.hpp"
#include "store_support.hpp"

#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace sharded_test {

using Numbers = std::vector<std::int64_t>;

/// Calls act(index) for each element of a shape, in row-major order.
template <class Act>
void for_each_index(const Numbers& shape, Act&& act) {
  for (const std::int64_t n : shape) {
    if (n == 0) return;
  }
  Numbers index(shape.size(), 0);
  while (true) {
    act(index);
    std::size_t d = shape.size();
    while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

inline std::uint64_t place_in(const Numbers& index, const Numbers& strides) {
  std::uint64_t at = 0;
  for (std::size_t d = 0; d < index.size(); ++d) at += static_cast<std::uint64_t>(index[d] * strides[d]);
  return at;
}

/// A tensor with its values, contiguous.
struct Whole {
  std::string name;
  ckpt::DType dtype = ckpt::DType::float32;
  Numbers shape;
  std::string values;

  [[nodiscard]] std::size_t width() const { return ckpt::bits_of(dtype) / 8; }
  /// The elements of a box, contiguous.
  [[nodiscard]] std::string values_of(const ckpt::ops::Box& box) const {
    const Numbers strides = ckpt::contiguous_strides(shape);
    const std::uint64_t origin = place_in(box.offsets, strides);
    std::string out;
    for_each_index(box.shape, [&](const Numbers& index) {
      out += values.substr((origin + place_in(index, strides)) * width(), width());
    });
    return out;
  }
};

/// What a file holds of it.
struct Part {
  std::string name;
  ckpt::DType dtype = ckpt::DType::float32;
  Numbers shape;
  Numbers global_shape;    ///< empty: not sharded
  Numbers global_offsets;  ///< as many
  std::string values;      ///< contiguous; empty for elements: it has no bytes
  Numbers strides;         ///< in the file; empty: contiguous
  bool negative = false;
  bool typed = false;  ///< an extent of its own
};

inline Part part_of(const Whole& whole, const ckpt::ops::Box& box) {
  return {.name = whole.name,
          .dtype = whole.dtype,
          .shape = box.shape,
          .global_shape = whole.shape,
          .global_offsets = box.offsets,
          .values = whole.values_of(box)};
}

struct File {
  std::string path;
  std::vector<Part> parts;
};

/// Lays the parts out behind one another, `padding` bytes between them.
inline void add_to(ckpt::format::Catalog& catalog, const File& file, std::string& content,
                   std::vector<ckpt::Extent>& extents, std::size_t padding) {
  for (const Part& part : file.parts) {
    ckpt::Tensor tensor{.name = part.name,
                        .dtype = part.dtype,
                        .negative = part.negative,
                        .shape = part.shape,
                        .strides = part.strides.empty() ? ckpt::contiguous_strides(part.shape) : part.strides,
                        .global_shape = part.global_shape,
                        .global_offsets = part.global_offsets};
    const std::uint64_t count = ckpt::element_count(tensor).value();
    tensor.has_bytes = count == 0 || !part.values.empty();
    const std::size_t width = std::max<std::size_t>(1, ckpt::bits_of(part.dtype) / 8);
    if (tensor.has_bytes && count > 0) {
      content.append(padding, 'P');
      if (part.typed) content.append(width - 1 - (content.size() + width - 1) % width, 'P');
      tensor.offset = content.size();
      content.append(ckpt::view_end(tensor).value() - tensor.offset, 'G');
      if (ckpt::bits_of(part.dtype) % 8 != 0) {
        content.replace(tensor.offset, part.values.size(), part.values);
      } else {
        std::size_t at = 0;
        for_each_index(part.shape, [&](const Numbers& index) {
          content.replace(tensor.offset + place_in(index, tensor.strides) * width, width,
                          part.values.substr(at, width));
          at += width;
        });
      }
      if (part.typed) {
        extents.push_back({.offset = tensor.offset, .size = content.size() - tensor.offset, .dtype = part.dtype});
      }
    }
    catalog.tensors.push_back(std::move(tensor));
  }
}

/// Commits a checkpoint with a shard for each list of files, in order of path.
inline ckpt::store::Checkpoint save(const ckpt::store::Store& store, const std::vector<std::vector<File>>& shards,
                                    std::size_t padding = 5) {
  const ckpt::store::SetKey set{.step = 1, .world_size = static_cast<std::uint32_t>(shards.size())};
  for (std::uint32_t rank = 0; rank < shards.size(); ++rank) {
    ckpt::format::Catalog tensors;
    std::vector<format_test::Content> contents;
    std::vector<std::size_t> counts;
    for (const File& file : shards[rank]) {
      std::string content;
      std::vector<ckpt::Extent> extents;
      const std::size_t before = tensors.tensors.size();
      add_to(tensors, file, content, extents, padding);
      const ckpt::ByteView bytes = ckpt::as_bytes(content);
      contents.push_back({.path = file.path, .bytes = {bytes.begin(), bytes.end()}, .extents = std::move(extents)});
      counts.push_back(tensors.tensors.size() - before);
    }
    auto sample =
        format_test::sample_of(contents, {.step = 1, .rank = rank, .world_size = set.world_size, .writer = "test"});
    sample.catalog.tensors = std::move(tensors.tensors);
    std::uint64_t first = 0;
    for (std::size_t f = 0; f < counts.size(); ++f) {
      sample.catalog.files[f].first_tensor = first;
      sample.catalog.files[f].tensor_count = counts[f];
      first += counts[f];
    }
    const ckpt::os::TemporaryFile temporary(store.scratch(), 0444);
    ckpt::format::ContainerWriter writer(temporary.share(), temporary.path(), sample.catalog, 0);
    for (const ckpt::Bytes& block : sample.blocks) {
      writer.add({.stored = block, .hash = ckpt::xxh3_128(ckpt::ByteView(block))});
    }
    const auto finished = writer.finish();
    (void)ckpt::store::publish_shard(
        store, {.set = set, .rank = rank, .root = finished.root, .temporary = temporary.path(), .replace = false});
  }
  auto committed = ckpt::store::commit_if_complete(store, {.set = set, .timings = {}});
  if (!committed) throw std::runtime_error("the set isn't complete");
  return *committed;
}

}  // namespace sharded_test

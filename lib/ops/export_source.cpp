// SPDX-License-Identifier: Apache-2.0
#include "ops/export_source.hpp"

#include "ops/strided_gather.hpp"
#include "ops/tensor_reader.hpp"

namespace ckpt::ops {

BlockCursor& ExportSource::open(const ExportItem& item) {
  if (!at_hand_.cursor || at_hand_.shard != item.shard || at_hand_.file != item.file) {
    at_hand_.cursor.reset();
    const auto container = shards_.get(item.shard);
    at_hand_.stored.emplace(container, container->catalog().files.at(item.file));
    at_hand_.cursor.emplace(*at_hand_.stored, gather_blocks);
    at_hand_.shard = item.shard;
    at_hand_.file = item.file;
  }
  return *at_hand_.cursor;
}

void ExportSource::read(const ExportItem& item, const std::function<void(ByteView)>& consume) {
  if (item.bytes == 0) return;
  read_tensor(open(item), item.tensor, jobs_, monitor_, consume);
}

Digest ExportSource::digest_of(const ExportItem& item) {
  Hasher hasher;
  read(item, [&](ByteView elements) { hasher.update(elements); });
  return hasher.digest();
}

bool ExportSource::have_same_blocks(const ExportItem& a, const ExportItem& b) {
  const Tensor& view = a.tensor;
  if (view.offset != b.tensor.offset || view.strides != b.tensor.strides || view.conjugate != b.tensor.conjugate ||
      view.negative != b.tensor.negative) {
    return false;
  }
  const auto first_reader = shards_.get(a.shard);
  const auto second_reader = shards_.get(b.shard);
  const StoredFile first(first_reader, first_reader->catalog().files.at(a.file));
  const StoredFile second(second_reader, second_reader->catalog().files.at(b.file));
  for (std::uint64_t at = view.offset; at < view_end(view).value_or(at);) {
    const StoredFile::Place x = first.place_of(at);
    const StoredFile::Place y = second.place_of(at);
    const bool same = x.begin == y.begin && x.end == y.end &&
                      first_reader->index().blocks[x.block].hash == second_reader->index().blocks[y.block].hash;
    if (!same) return false;
    at = x.end;
  }
  return true;
}

bool ExportSource::are_replicas(const ExportItem& a, const ExportItem& b) {
  const bool same_kind = a.tensor.dtype == b.tensor.dtype && a.tensor.shape == b.tensor.shape &&
                         a.tensor.global_shape == b.tensor.global_shape &&
                         a.tensor.global_offsets == b.tensor.global_offsets &&
                         a.tensor.has_bytes == b.tensor.has_bytes && a.tensor.layout == b.tensor.layout;
  if (!same_kind) return false;
  if (a.bytes == 0 || have_same_blocks(a, b)) return true;
  return digest_of(a) == digest_of(b);
}

}  // namespace ckpt::ops

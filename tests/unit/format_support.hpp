// SPDX-License-Identifier: Apache-2.0
// A catalog with one of everything, its blocks, and a container of them: what the tests of the format start from.
#pragma once

#include "core/bytes.hpp"
#include "core/digest.hpp"
#include "format/catalog.hpp"
#include "format/cbor_table.hpp"
#include "format/container_writer.hpp"
#include "format/damaged.hpp"

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace format_test {

using Random = std::mt19937_64;

[[nodiscard]] ckpt::Bytes random_bytes(std::size_t size, Random& random);

/// A file to store: its content and the typed ranges in it.
struct Content {
  std::string path;
  ckpt::Bytes bytes;
  std::vector<ckpt::Extent> extents = {};
};

struct Sample {
  ckpt::format::Catalog catalog;
  std::vector<ckpt::Bytes> blocks;
};

/// Files in order of path, cut into blocks.
[[nodiscard]] Sample sample_of(const std::vector<Content>& files, ckpt::format::ShardInfo shard = {});

/// A directory, files (one empty, one with two tensors), a symlink and a hard link; some hundred bytes.
[[nodiscard]] Sample small_sample();

/// Writes `sample` to a new file; every other block as zstd where that makes it smaller, if `compress`.
ckpt::format::ContainerWriter::Finished write_container(const std::string& path, const Sample& sample,
                                                        bool compress = false);

[[nodiscard]] ckpt::Bytes read_file(const std::string& path);
void write_file(const std::string& path, ckpt::ByteView bytes);

/// A column of packed numbers.
template <class T>
[[nodiscard]] ckpt::format::Json column(const std::vector<T>& values) {
  ckpt::Bytes packed;
  for (const T value : values) ckpt::append_le(packed, value);
  const auto* begin = reinterpret_cast<const std::uint8_t*>(packed.data());
  return ckpt::format::Json::binary(std::vector<std::uint8_t>(begin, begin + packed.size()));
}

}  // namespace format_test

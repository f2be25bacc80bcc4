// SPDX-License-Identifier: Apache-2.0
#include "format_support.hpp"

#include "codec/zstd_frame.hpp"
#include "os/fd.hpp"

#include <fcntl.h>
#include <algorithm>
#include <filesystem>
#include <fstream>

namespace format_test {

using namespace ckpt;
using namespace ckpt::format;

Bytes random_bytes(std::size_t size, Random& random) {
  Bytes bytes(size);
  // Long runs of one value, so that some blocks can be compressed.
  for (std::size_t at = 0; at < size;) {
    const std::size_t run = std::min<std::size_t>(size - at, random() % 4 == 0 ? 1 + random() % 3000 : 1);
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), run, static_cast<std::byte>(random() & 255U));
    at += run;
  }
  return bytes;
}

Sample sample_of(const std::vector<Content>& files, ShardInfo shard) {
  Sample sample;
  sample.catalog.shard = std::move(shard);
  if (sample.catalog.shard.writer.empty()) sample.catalog.shard.writer = "test 1";
  for (const Content& content : files) {
    FileEntry file{.path = content.path, .mode = 0644, .size = content.bytes.size(), .mtime_ns = 1};
    const auto sizes = cut_into_blocks(file.size, content.extents);
    file.first_block = sample.catalog.block_sizes.size();
    file.block_count = sizes.size();
    file.first_extent = sample.catalog.extents.size();
    file.extent_count = content.extents.size();
    std::size_t at = 0;
    for (const std::uint64_t size : sizes) {
      const ByteView block = ByteView(content.bytes).subspan(at, size);
      sample.blocks.emplace_back(block.begin(), block.end());
      at += size;
    }
    sample.catalog.block_sizes.insert(sample.catalog.block_sizes.end(), sizes.begin(), sizes.end());
    sample.catalog.extents.insert(sample.catalog.extents.end(), content.extents.begin(), content.extents.end());
    sample.catalog.files.push_back(std::move(file));
  }
  return sample;
}

Sample small_sample() {
  Random random(1);
  Sample sample = sample_of({{.path = "a/empty", .bytes = {}},
                             {.path = "a/one",
                              .bytes = random_bytes(300, random),
                              .extents = {{.offset = 8, .size = 64, .dtype = DType::float32},
                                          {.offset = 100, .size = 16, .dtype = DType::int64}}},
                             {.path = "b", .bytes = random_bytes(70000, random)}},
                            {.step = 7, .attempt = 2, .rank = 1, .world_size = 4, .meta = {{"k", "v"}}, .created = 99});
  auto& files = sample.catalog.files;
  files.insert(files.begin(), FileEntry{.path = "a", .type = EntryType::directory, .mode = 0750, .mtime_ns = -5});
  files.push_back({.path = "c", .type = EntryType::symlink, .mode = 0777, .target = "a/one"});
  files.push_back({.path = "d", .type = EntryType::hardlink, .mode = 0644, .target = "a/one"});
  FileEntry& one = files.at(2);
  one.kind = FileKind::torch_zip;
  one.note = "a note";
  one.tensor_count = 2;
  files.at(3).first_tensor = files.at(4).first_tensor = files.at(5).first_tensor = 2;
  files.at(4).first_block = files.at(5).first_block = sample.catalog.block_sizes.size();
  files.at(3).first_extent = files.at(4).first_extent = files.at(5).first_extent = 2;
  sample.catalog.tensors = {{.name = "x.weight",
                             .dtype = DType::float32,
                             .offset = 8,
                             .shape = {4, 4},
                             .strides = {4, 1},
                             .global_shape = {8, 4},
                             .global_offsets = {4, 0}},
                            {.name = std::string("odd\n\xff", 5),
                             .dtype = DType::int64,
                             .negative = true,
                             .offset = 100,
                             .shape = {2},
                             .strides = {1}}};
  return sample;
}

ContainerWriter::Finished write_container(const std::string& path, const Sample& sample, bool compress) {
  ContainerWriter writer(os::open(path, O_RDWR | O_CREAT | O_EXCL, 0644), path, sample.catalog, 0);
  bool odd = false;
  for (const Bytes& block : sample.blocks) {
    const Bytes packed = compress && odd ? codec::zstd_compress(block, 1) : block;
    odd = !odd;
    const bool smaller = packed.size() < block.size();
    writer.add({.codec = smaller ? Codec::zstd : Codec::raw,
                .stored = smaller ? packed : block,
                .hash = xxh3_128(ByteView(block))});
  }
  return writer.finish();
}

Bytes read_file(const std::string& path) {
  Bytes bytes(std::filesystem::file_size(path));
  const os::Fd fd = os::open(path, O_RDONLY);
  bytes.resize(os::read_at(fd, 0, bytes, path));
  return bytes;
}

void write_file(const std::string& path, ByteView bytes) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << as_text(bytes);
}

}  // namespace format_test

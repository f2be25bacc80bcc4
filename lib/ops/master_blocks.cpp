// SPDX-License-Identifier: Apache-2.0
#include "ops/master_blocks.hpp"

#include "codec/kernels.hpp"
#include "format/constants.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>

namespace ckpt::ops {
namespace {

/// Values at a tensor's start and middle that its fingerprint has.
constexpr std::size_t probe = 16;

/// An extent that has blocks of its own.
struct FloatTensor {
  std::size_t file = 0;
  Extent extent;
  std::uint64_t first_block = 0;
};

/// Extents of float32 and of 16-bit floats, with the block that each starts.
std::vector<FloatTensor> find_candidates(const format::Catalog& catalog) {
  std::vector<FloatTensor> candidates;
  for (std::size_t f = 0; f < catalog.files.size(); ++f) {
    const format::FileEntry& file = catalog.files[f];
    std::uint64_t block = file.first_block;
    std::uint64_t begin = 0;
    for (std::uint64_t e = file.first_extent; e < file.first_extent + file.extent_count; ++e) {
      const Extent& extent = catalog.extents[e];
      const bool fits =
          extent.dtype == DType::float32 || extent.dtype == DType::bfloat16 || extent.dtype == DType::float16;
      if (!fits || extent.size < format::share_limit || extent.size % 4 != 0) continue;
      while (begin < extent.offset) begin += catalog.block_sizes[block++];
      if (begin == extent.offset) candidates.push_back({.file = f, .extent = extent, .first_block = block});
    }
  }
  return candidates;
}

/// Elements of `width` bytes at the start and in the middle of an extent.
Bytes probe_values(const ShardBytes& bytes, const FloatTensor& candidate, std::size_t width) {
  const Extent& extent = candidate.extent;
  const std::uint64_t middle = extent.size / width / 2 * width;
  os::AlignedBuffer buffer;
  Bytes values;
  for (const std::uint64_t offset : {extent.offset, extent.offset + middle}) {
    append(values, bytes.read(candidate.file, offset, probe * width, buffer));
  }
  return values;
}

std::string fingerprint(DType dtype, std::uint64_t elements, ByteView rounded) {
  return std::string(ckpt::name_of(dtype)) + " " + std::to_string(elements) + " " + std::string(as_text(rounded));
}

}  // namespace

MasterBlocks::MasterBlocks(const ShardBytes& bytes, const format::Catalog& catalog)
    : is_master_(catalog.block_sizes.size()) {
  const std::vector<FloatTensor> candidates = find_candidates(catalog);
  const auto is_master = [](const FloatTensor& c) { return c.extent.dtype == DType::float32; };
  const auto masters = std::count_if(candidates.begin(), candidates.end(), is_master);
  if (masters == 0 || masters == static_cast<std::ptrdiff_t>(candidates.size())) return;

  const auto& round = codec::kernels().round;
  std::map<std::string, const FloatTensor*> by_fingerprint;
  for (const FloatTensor& candidate : candidates) {
    if (!is_master(candidate)) continue;
    const Bytes values = probe_values(bytes, candidate, 4);
    std::array<std::byte, 2 * probe * 2> rounded;
    const std::uint64_t elements = candidate.extent.size / 4;
    round.to_bfloat16(values.data(), 2 * probe, rounded.data());
    by_fingerprint.emplace(fingerprint(DType::bfloat16, elements, rounded), &candidate);
    round.to_float16(values.data(), 2 * probe, rounded.data());
    by_fingerprint.emplace(fingerprint(DType::float16, elements, rounded), &candidate);
  }
  for (const FloatTensor& copy : candidates) {
    if (is_master(copy)) continue;
    const Bytes values = probe_values(bytes, copy, 2);
    const auto found = by_fingerprint.find(fingerprint(copy.extent.dtype, copy.extent.size / 2, values));
    if (found == by_fingerprint.end()) continue;
    const FloatTensor& master = *found->second;
    const auto rounding =
        copy.extent.dtype == DType::bfloat16 ? codec::Rounding::to_bfloat16 : codec::Rounding::to_float16;
    std::uint64_t offset = 0;
    for (std::uint64_t b = copy.first_block; offset < copy.extent.size; ++b) {
      const std::uint64_t block = master.first_block + 2 * offset / format::block_size;
      by_block_[b] = {
          .file = master.file, .offset = master.extent.offset + 2 * offset, .block = block, .rounding = rounding};
      is_master_[block] = true;
      if (2 * catalog.block_sizes[b] > format::block_size) is_master_[block + 1] = true;
      offset += catalog.block_sizes[b];
    }
  }
}

const MasterBlock* MasterBlocks::find(std::uint64_t block) const {
  const auto found = by_block_.find(block);
  return found == by_block_.end() ? nullptr : &found->second;
}

}  // namespace ckpt::ops

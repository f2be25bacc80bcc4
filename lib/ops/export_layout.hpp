// SPDX-License-Identifier: Apache-2.0
// An export, whatever its format, is a sequence of literal bytes and tensors. It's laid out as a whole before the first
// byte is written, so that what can't be exported is known by then, and so is the size.
#pragma once

#include "core/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::ops {

/// A tensor that was chosen.
struct ExportItem {
  std::size_t shard = 0;  ///< in the manifest's list
  std::size_t file = 0;   ///< in the shard's catalog
  std::string path;       ///< of the file
  Tensor tensor;
  std::string name;         ///< in the output
  std::uint64_t bytes = 0;  ///< of the contiguous form
  std::size_t whole = 0;    ///< where shards are joined, instead of shard and file: in the list of GlobalTensors
};

struct ExportSegment {
  /// The CRC-32 of an item that came before goes into four bytes of the literal.
  struct Checksum {
    std::size_t at = 0;
    std::size_t item = 0;
  };
  std::string literal;  ///< comes first
  std::vector<Checksum> checksums = {};
  std::optional<std::size_t> item;  ///< then this one's bytes
};

using ExportLayout = std::vector<ExportSegment>;

/// Each throws Errc::unsupported for a tensor that the format can't hold. raw and npy take exactly one item.
[[nodiscard]] ExportLayout lay_out_raw(const std::vector<ExportItem>& items);
[[nodiscard]] ExportLayout lay_out_npy(const std::vector<ExportItem>& items);
[[nodiscard]] ExportLayout lay_out_safetensors(const std::vector<ExportItem>& items);
[[nodiscard]] ExportLayout lay_out_pt(const std::vector<ExportItem>& items);
/// `mtime` in seconds since the epoch is that of all members.
[[nodiscard]] ExportLayout lay_out_tar(const std::vector<ExportItem>& items, std::int64_t mtime);

/// What stands before the elements in an npy file.
[[nodiscard]] std::string npy_header(const ExportItem& item);

/// Says that a format has no name for the tensor's type.
[[noreturn]] void refuse_dtype(const ExportItem& item, std::string_view format, std::string_view hint);

}  // namespace ckpt::ops

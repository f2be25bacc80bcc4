// SPDX-License-Identifier: Apache-2.0
// Lays out a zip as torch.save writes it: stored records aligned to 64 bytes, their checksums in descriptors behind
// them and in the directory. Of the records that are large only the size is known here: their bytes come from
// elsewhere, and with them their checksums.
#pragma once

#include "core/bytes.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::source {

/// Bytes of the archive, and after them the bytes of a content, if one is named.
struct ArchiveSegment {
  /// Four bytes of `literal`, from `at`, are the CRC-32 of a content, little-endian.
  struct Checksum {
    std::size_t at = 0;
    std::size_t content = 0;
  };
  std::string literal;
  std::vector<Checksum> checksums;
  std::optional<std::size_t> content;
};

class TorchArchiveLayout {
 public:
  /// Records are called PREFIX/NAME.
  explicit TorchArchiveLayout(std::string prefix) : prefix_(std::move(prefix)) {}

  /// A record whose bytes are known.
  void add(std::string_view name, ByteView bytes);
  /// A record whose bytes are a content, by its caller's number.
  void add_content(std::string_view name, std::size_t content, std::uint64_t size);

  /// All segments in order; the directory is in the last ones. The object is empty then.
  [[nodiscard]] std::vector<ArchiveSegment> finish();

 private:
  struct Record {
    std::string name;
    std::uint64_t size = 0;
    std::uint32_t checksum = 0;
    std::optional<std::size_t> content = std::nullopt;  ///< whose checksum it is
    std::uint64_t place = 0;
  };

  [[nodiscard]] std::string& literal() { return segments_.back().literal; }
  [[nodiscard]] std::uint64_t position() { return at_ + literal().size(); }
  void put_checksum(const Record& record);
  void put_common(const Record& record, bool local, std::uint16_t extra);
  void begin(Record record);
  void put_entry(const Record& record);
  void put_end(std::uint64_t directory, std::uint64_t end);

  std::string prefix_;
  std::vector<ArchiveSegment> segments_{1};
  std::uint64_t at_ = 0;  ///< where the last literal begins
  std::vector<Record> records_;
};

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// The directory of a zip archive. Only the central directory is believed; of the local headers only the lengths
// that say where the data starts are used, since writers leave their other fields empty.
#pragma once

#include "core/bytes.hpp"
#include "source/huge_table.hpp"
#include "source/input.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::source {

inline constexpr std::uint64_t max_zip_directory = std::uint64_t{128} << 20U;

struct ZipEntry {
  std::string_view name;     ///< points into the directory's bytes
  std::uint64_t header = 0;  ///< where in the file the local header starts
  std::uint64_t size = 0;    ///< of the data as they lie in the file
  bool stored = false;       ///< neither compressed nor encrypted
};

struct ZipDirectory {
  HugeTable<std::byte> bytes;  ///< the central directory as read; moving it keeps the names valid
  HugeTable<ZipEntry> entries;
  std::uint64_t begin = 0;      ///< where in the file the archive starts
  std::uint64_t directory = 0;  ///< where in the file the central directory starts
};

enum class ZipStatus {
  complete,
  cut_short,  ///< there's no end record
  altered,    ///< the records contradict each other
  refused,    ///< the directory is larger than max_zip_directory
};

struct ZipResult {
  ZipStatus status = ZipStatus::complete;
  ZipDirectory directory;
  std::string message;  ///< empty if complete
};

/// Reads the directory of the archive that takes the bytes [begin, end) of the file. Never throws because of them.
[[nodiscard]] ZipResult read_zip_directory(const Input& input, std::uint64_t begin, std::uint64_t end);

/// Where an archive starts that ends exactly at `end` and holds no comment; nothing if there's none. Reads its last
/// bytes only.
[[nodiscard]] std::optional<std::uint64_t> find_zip_begin(const Input& input, std::uint64_t end);

/// Finds where the data of the wanted entries (indexes) start, in few reads. `starts` gets one number for each.
/// Gives what is wrong if a local header isn't where it should be or the data don't fit.
[[nodiscard]] std::optional<std::string> locate_zip_data(const Input& input, const ZipDirectory& directory,
                                                         std::span<const std::uint32_t> wanted,
                                                         std::vector<std::uint64_t>& starts);

}  // namespace ckpt::source

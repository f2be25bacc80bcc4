// SPDX-License-Identifier: Apache-2.0
// Where an archive says what its members' checksums are: what must be written anew if their data change.
#pragma once

#include "source/zip_directory.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ckpt::source {

struct ZipMember {
  std::uint64_t begin = 0;  ///< of its data, in the file
  std::uint64_t end = 0;
  std::vector<std::uint64_t> checksums;  ///< where in the file its CRC-32 stands, four bytes each
};

/// The stored members of an archive, by their place. Throws Errc::unsupported if it isn't said plainly where the
/// checksums are.
[[nodiscard]] std::vector<ZipMember> find_zip_members(const Input& input, const ZipDirectory& directory);

}  // namespace ckpt::source

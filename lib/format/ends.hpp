// SPDX-License-Identifier: Apache-2.0
// The two ends of a container: the header that says what it is, the footer that says where everything is.
//
// Header (64 bytes):                              Footer (128 bytes, the last of the file):
//    0   8  magic 89 43 4b 50 54 0d 0a 1a            0   8  index: offset
//    8   2  major version                            8   8  index: size
//   10   2  minor version                           16  16  index: XXH3-128
//   12   4  zero                                    32   8  sums: offset
//   16   8  compat flags                            40   8  sums: size
//   24   8  ro_compat flags                         48  16  sums: XXH3-128
//   32   8  incompat flags                          64   8  size of the whole file
//   40  16  zero                                    72   8  compat flags really used
//   56   8  XXH3-64 of the 56 bytes before          80   8  ro_compat flags really used
//                                                   88   8  incompat flags really used
//                                                   96   2  major version
//                                                   98   2  minor version
//                                                  100   4  zero
//                                                  104  16  XXH3-128 of the 104 bytes before
//                                                  120   8  magic 1a 0a 0d 54 50 4b 43 89
#pragma once

#include "core/bytes.hpp"
#include "core/digest.hpp"

#include <cstdint>
#include <string>

namespace ckpt::format {

struct Flags {
  std::uint64_t compat = 0;
  std::uint64_t ro_compat = 0;
  std::uint64_t incompat = 0;
};

struct Section {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  Digest hash;
};

struct Footer {
  Section index;
  Section sums;
  std::uint64_t file_size = 0;
  Flags flags;
  std::uint16_t major = 0;
  std::uint16_t minor = 0;
};

inline constexpr std::uint64_t header_size = 64;
inline constexpr std::uint64_t footer_size = 128;

[[nodiscard]] Bytes encode_header(const Flags& flags);
/// Checks magic, checksum, version and flags. Throws Damaged; Errc::unsupported for a newer version or unknown flag.
void check_header(ByteView header, const std::string& name);

[[nodiscard]] Bytes encode_footer(const Footer& footer);
/// `footer` is the last footer_size bytes of a file of `file_size` bytes. Throws as check_header() does; a file that
/// doesn't end with a footer is truncated, one whose footer fails its checksum altered.
[[nodiscard]] Footer decode_footer(ByteView footer, std::uint64_t file_size, const std::string& name);

/// What identifies a container as a whole: its footer's own checksum.
[[nodiscard]] Digest footer_digest(ByteView footer);

/// Throws Errc::unsupported if a version or flag isn't known here; `for_writing` also asks the ro_compat flags.
void require_known(std::uint64_t major, const Flags& flags, bool for_writing, const std::string& name);

}  // namespace ckpt::format

// SPDX-License-Identifier: Apache-2.0
#include "format/ends.hpp"

#include "format/constants.hpp"
#include "format/damaged.hpp"

#include <algorithm>
#include <array>

namespace ckpt::format {
namespace {

constexpr std::array<std::uint8_t, 8> header_magic = {0x89, 'C', 'K', 'P', 'T', '\r', '\n', 0x1a};
constexpr std::array<std::uint8_t, 8> footer_magic = {0x1a, '\n', '\r', 'T', 'P', 'K', 'C', 0x89};

bool begins_with(ByteView data, const std::array<std::uint8_t, 8>& magic) {
  return std::equal(magic.begin(), magic.end(), data.begin(),
                    [](std::uint8_t a, std::byte b) { return a == std::to_integer<std::uint8_t>(b); });
}

bool is_zero(ByteView data) {
  return std::all_of(data.begin(), data.end(), [](std::byte b) { return b == std::byte{0}; });
}

void append_section(Bytes& out, const Section& section) {
  append_le(out, section.offset);
  append_le(out, section.size);
  append(out, section.hash.bytes);
}

Section load_section(const std::byte* at) {
  Section section{.offset = load_le<std::uint64_t>(at), .size = load_le<std::uint64_t>(at + 8), .hash = {}};
  std::copy_n(at + 16, section.hash.bytes.size(), section.hash.bytes.begin());
  return section;
}

}  // namespace

void require_known(std::uint64_t major, const Flags& flags, bool for_writing, const std::string& name) {
  if (major != major_version) {
    throw Error(Errc::unsupported, "'" + name + "' has format version " + std::to_string(major) +
                                       "; this program knows version " + std::to_string(major_version));
  }
  const auto refuse = [&](const char* word, std::uint64_t unknown) {
    throw Error(Errc::unsupported, "'" + name + "' uses " + word + " feature bit " +
                                       std::to_string(std::countr_zero(unknown)) + ", which this program doesn't know");
  };
  if (const auto unknown = flags.incompat & ~known_incompat; unknown != 0) refuse("the incompat", unknown);
  if (!for_writing) return;
  if (const auto unknown = flags.ro_compat & ~known_ro_compat; unknown != 0) refuse("the ro_compat", unknown);
}

Bytes encode_header(const Flags& flags) {
  Bytes out;
  append(out, std::as_bytes(std::span(header_magic)));
  append_le(out, major_version);
  append_le(out, minor_version);
  append_le<std::uint32_t>(out, 0);
  append_le(out, flags.compat);
  append_le(out, flags.ro_compat);
  append_le(out, flags.incompat);
  out.resize(header_size - 8);
  append_le(out, xxh3_64(out));
  return out;
}

void check_header(ByteView header, const std::string& name) {
  const auto altered = [&](const char* why) {
    throw Damaged(DamageKind::altered, 0, header_size, "'" + name + "': the header " + why);
  };
  if (header.size() < header_size) {
    throw Damaged(DamageKind::truncated, header.size(), header_size, "'" + name + "' ends inside its header");
  }
  if (!begins_with(header, header_magic)) altered("has a wrong magic");
  if (load_le<std::uint64_t>(header.data() + 56) != xxh3_64(header.first(56))) altered("fails its checksum");
  require_known(load_le<std::uint16_t>(header.data() + 8),
                {.compat = load_le<std::uint64_t>(header.data() + 16),
                 .ro_compat = load_le<std::uint64_t>(header.data() + 24),
                 .incompat = load_le<std::uint64_t>(header.data() + 32)},
                false, name);
  if (!is_zero(header.subspan(12, 4)) || !is_zero(header.subspan(40, 16)))
    altered("has a reserved field that is not zero");
}

Bytes encode_footer(const Footer& footer) {
  Bytes out;
  append_section(out, footer.index);
  append_section(out, footer.sums);
  append_le(out, footer.file_size);
  append_le(out, footer.flags.compat);
  append_le(out, footer.flags.ro_compat);
  append_le(out, footer.flags.incompat);
  append_le(out, footer.major);
  append_le(out, footer.minor);
  append_le<std::uint32_t>(out, 0);
  append(out, xxh3_128(ByteView(out)).bytes);
  append(out, std::as_bytes(std::span(footer_magic)));
  return out;
}

Digest footer_digest(ByteView footer) {
  Digest digest;
  std::copy_n(footer.data() + 104, digest.bytes.size(), digest.bytes.begin());
  return digest;
}

Footer decode_footer(ByteView data, std::uint64_t file_size, const std::string& name) {
  const std::uint64_t begin = file_size - std::min(file_size, footer_size);
  if (data.size() < footer_size) {
    throw Damaged(DamageKind::truncated, file_size, file_size, "'" + name + "' is too short for a container");
  }
  const bool has_magic = begins_with(data.subspan(120), footer_magic);
  const bool sound = footer_digest(data) == xxh3_128(data.first(104));
  if (!has_magic && !sound) {
    throw Damaged(DamageKind::truncated, file_size, file_size,
                  "'" + name + "' is cut short: it doesn't end with a footer");
  }
  if (!has_magic || !sound) {
    throw Damaged(DamageKind::altered, begin, file_size, "'" + name + "': the footer fails its checksum");
  }
  Footer footer{.index = load_section(data.data()),
                .sums = load_section(data.data() + 32),
                .file_size = load_le<std::uint64_t>(data.data() + 64),
                .flags = {.compat = load_le<std::uint64_t>(data.data() + 72),
                          .ro_compat = load_le<std::uint64_t>(data.data() + 80),
                          .incompat = load_le<std::uint64_t>(data.data() + 88)},
                .major = load_le<std::uint16_t>(data.data() + 96),
                .minor = load_le<std::uint16_t>(data.data() + 98)};
  require_known(footer.major, footer.flags, false, name);
  if (!is_zero(data.subspan(100, 4))) {
    throw Damaged(DamageKind::altered, begin, file_size,
                  "'" + name + "': the footer has a reserved field that is not zero");
  }
  if (footer.file_size != file_size) {
    throw Damaged(DamageKind::altered, begin, file_size,
                  "'" + name + "' has " + std::to_string(file_size) + " bytes, its footer says " +
                      std::to_string(footer.file_size));
  }
  const std::uint64_t sums_end = file_size - footer_size;
  const std::uint64_t granules = (footer.sums.offset + granule - 1) / granule;
  if (!lies_within(footer.sums.offset, footer.sums.size, sums_end) ||
      footer.sums.offset + footer.sums.size != sums_end || footer.sums.offset < header_size ||
      footer.sums.size != granules * 8 || !lies_within(footer.index.offset, footer.index.size, footer.sums.offset) ||
      footer.index.offset < header_size || footer.index.size > max_index_size) {
    throw Damaged(DamageKind::altered, begin, file_size, "'" + name + "': the footer names impossible places");
  }
  return footer;
}

}  // namespace ckpt::format

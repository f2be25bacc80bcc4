// SPDX-License-Identifier: Apache-2.0
// Header, footer and frame headers: what is written is read back; each field that can lie is refused, and that although
// its checksum is right.
#include "format/constants.hpp"
#include "format/damaged.hpp"
#include "format/ends.hpp"
#include "format/frame.hpp"

#include <doctest/doctest.h>
#include <algorithm>
#include <functional>
#include <string>

using namespace ckpt;
using namespace ckpt::format;

namespace {

/// The header with `edit` done to it and its checksum made right again.
Bytes edited_header(const std::function<void(std::byte*)>& edit) {
  Bytes header = encode_header({});
  edit(header.data());
  store_le(header.data() + 56, xxh3_64(ByteView(header).first(56)));
  return header;
}

constexpr std::uint64_t sums_at = 70000;
constexpr std::uint64_t file_size = sums_at + 16 + footer_size;

Footer sound_footer() {
  return {.index = {.offset = 64, .size = 1000, .hash = xxh3_128(std::string_view("index"))},
          .sums = {.offset = sums_at, .size = 16, .hash = xxh3_128(std::string_view("sums"))},
          .file_size = file_size,
          .flags = {},
          .major = major_version,
          .minor = minor_version};
}

Bytes footer_with(const std::function<void(Footer&)>& edit) {
  Footer footer = sound_footer();
  edit(footer);
  return encode_footer(footer);
}

FrameHeader sound_frame() {
  FrameHeader header{.kind = FrameKind::blocks, .header_size = 0, .payload_size = 30, .first_block = 5, .entries = {}};
  header.entries.push_back({.raw_size = 10, .stored_size = 10, .codec = Codec::raw, .hash = {}});
  header.entries.push_back(
      {.raw_size = 50, .stored_size = 20, .codec = Codec::zstd, .hash = xxh3_128(std::string_view("x"))});
  return header;
}

Bytes edited_frame(const std::function<void(Bytes&)>& edit) {
  Bytes data = encode_frame_header(sound_frame(), 64);
  edit(data);
  store_le<std::uint64_t>(data.data() + 40, 0);
  store_le(data.data() + 40, xxh3_64(data));
  return data;
}

Errc code_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.code();
  }
  return Errc::interrupted;  // nothing here throws it
}

DamageKind kind_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Damaged& damage) {
    return damage.kind();
  }
  return DamageKind::unreadable;
}

}  // namespace

TEST_SUITE("format ends") {
  TEST_CASE("a header is accepted as it's written") {
    const Bytes header = encode_header({});
    CHECK(header.size() == header_size);
    CHECK_NOTHROW(check_header(header, "x"));
  }

  TEST_CASE("a header with any bit flipped is refused") {
    const Bytes sound = encode_header({});
    for (std::size_t bit = 0; bit < sound.size() * 8; ++bit) {
      Bytes header = sound;
      header[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      CHECK_THROWS_AS(check_header(header, "x"), Damaged);
    }
  }

  TEST_CASE("a header that is cut short is truncated") {
    const Bytes header = encode_header({});
    for (std::size_t size = 0; size < header.size(); ++size) {
      CHECK(kind_of([&] { check_header(ByteView(header).first(size), "x"); }) == DamageKind::truncated);
    }
  }

  TEST_CASE("an unknown compat or ro_compat flag is passed over by readers") {
    CHECK_NOTHROW(check_header(encode_header({.compat = ~0ULL}), "x"));
    CHECK_NOTHROW(check_header(encode_header({.ro_compat = ~0ULL}), "x"));
  }

  TEST_CASE("any unknown incompat flag is refused and named") {
    for (unsigned bit = 2; bit < 64; ++bit) {
      const Bytes header = encode_header({.incompat = 1ULL << bit});
      CHECK_THROWS_WITH(check_header(header, "x"), doctest::Contains(("bit " + std::to_string(bit)).c_str()));
      CHECK(code_of([&] { check_header(header, "x"); }) == Errc::unsupported);
    }
  }

  TEST_CASE("an unknown ro_compat flag bars writers only") {
    const Flags flags{.ro_compat = 1};
    CHECK_NOTHROW(require_known(1, flags, false, "x"));
    CHECK(code_of([&] { require_known(1, flags, true, "x"); }) == Errc::unsupported);
  }

  TEST_CASE("a reserved field that isn't zero is refused") {
    for (const std::size_t at : {12U, 15U, 40U, 55U}) {
      CAPTURE(at);
      CHECK_THROWS_AS(check_header(edited_header([&](std::byte* h) { h[at] = std::byte{1}; }), "x"), Damaged);
    }
    Bytes footer = encode_footer(sound_footer());
    footer[103] = std::byte{1};
    const Digest digest = xxh3_128(ByteView(footer).first(104));
    std::copy(digest.bytes.begin(), digest.bytes.end(), footer.begin() + 104);
    CHECK_THROWS_AS((void)decode_footer(footer, file_size, "x"), Damaged);
  }

  TEST_CASE("another major version is unsupported, not damaged") {
    const Bytes old = edited_header([](std::byte* at) { store_le<std::uint16_t>(at + 8, 0); });
    CHECK(code_of([&] { check_header(old, "x"); }) == Errc::unsupported);
    const Bytes header = edited_header([](std::byte* at) { store_le<std::uint16_t>(at + 8, 2); });
    CHECK(code_of([&] { check_header(header, "x"); }) == Errc::unsupported);
  }

  TEST_CASE("a newer minor version is read") {
    CHECK_NOTHROW(check_header(edited_header([](std::byte* at) { store_le<std::uint16_t>(at + 10, 9); }), "x"));
  }

  TEST_CASE("a footer comes back as it was written") {
    const Footer read = decode_footer(encode_footer(sound_footer()), file_size, "x");
    CHECK(read.index.offset == 64);
    CHECK(read.index.size == 1000);
    CHECK(read.index.hash == sound_footer().index.hash);
    CHECK(read.sums.offset == sums_at);
    CHECK(read.sums.size == 16);
    CHECK(read.sums.hash == sound_footer().sums.hash);
    CHECK(read.file_size == file_size);
    CHECK(read.major == 1);
  }

  TEST_CASE("a footer with any bit flipped is refused as altered") {
    const Bytes sound = encode_footer(sound_footer());
    for (std::size_t bit = 0; bit < sound.size() * 8; ++bit) {
      Bytes footer = sound;
      footer[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      CHECK(kind_of([&] { (void)decode_footer(footer, file_size, "x"); }) == DamageKind::altered);
    }
  }

  TEST_CASE("a file that doesn't end with a footer is truncated") {
    const Bytes zeros(footer_size);
    CHECK(kind_of([&] { (void)decode_footer(zeros, file_size, "x"); }) == DamageKind::truncated);
    CHECK(kind_of([&] { (void)decode_footer(ByteView(zeros).first(127), 127, "x"); }) == DamageKind::truncated);
  }

  TEST_CASE("a footer that names an impossible place is refused") {
    const std::vector<std::function<void(Footer&)>> edits = {
        [](Footer& f) { f.file_size += 1; },
        [](Footer& f) { f.index.offset = 63; },
        [](Footer& f) { f.index.offset = sums_at + 1; },
        [](Footer& f) { f.index.offset = UINT64_MAX; },
        [](Footer& f) { f.index.size = sums_at; },
        [](Footer& f) { f.index.size = UINT64_MAX; },
        [](Footer& f) { f.sums.offset += 8; },
        [](Footer& f) { f.sums.offset = UINT64_MAX; },
        [](Footer& f) { f.sums.offset = UINT64_MAX - 65535; },
        [](Footer& f) { f.sums.size = 8; },
        [](Footer& f) { f.sums.size = 24; },
        [](Footer& f) { f.sums = {.offset = 0, .size = file_size - footer_size, .hash = {}}; },
    };
    for (std::size_t i = 0; i < edits.size(); ++i) {
      CAPTURE(i);
      CHECK_THROWS_AS((void)decode_footer(footer_with(edits[i]), file_size, "x"), Damaged);
    }
  }

  TEST_CASE("a footer's unknown incompat flag and newer version are unsupported") {
    CHECK(code_of([&] { (void)decode_footer(footer_with([](Footer& f) { f.flags.incompat = 8; }), file_size, "x"); }) ==
          Errc::unsupported);
    CHECK(code_of([&] { (void)decode_footer(footer_with([](Footer& f) { f.major = 2; }), file_size, "x"); }) ==
          Errc::unsupported);
    CHECK_NOTHROW((void)decode_footer(footer_with([](Footer& f) { f.flags.compat = 8; }), file_size, "x"));
  }
}

TEST_SUITE("format frame") {
  TEST_CASE("a frame header comes back as it was written") {
    const Bytes data = encode_frame_header(sound_frame(), 64);
    CHECK(data.size() == frame_header_size(data, 64));
    const FrameHeader read = decode_frame_header(data, 64);
    CHECK(read.kind == FrameKind::blocks);
    CHECK(read.first_block == 5);
    CHECK(read.payload_size == 30);
    REQUIRE(read.entries.size() == 2);
    CHECK(read.entries[0].codec == Codec::raw);
    CHECK(read.entries[1].codec == Codec::zstd);
    CHECK(read.entries[1].raw_size == 50);
    CHECK(read.entries[1].stored_size == 20);
    CHECK(read.entries[1].hash == xxh3_128(std::string_view("x")));
  }

  TEST_CASE("a payload of 64 KiB starts at a multiple of 4096, a smaller one at a multiple of 8") {
    FrameHeader header{.kind = FrameKind::blocks,
                       .header_size = 0,
                       .payload_size = 65536,
                       .first_block = 0,
                       .entries = {{.raw_size = 65536, .stored_size = 65536, .codec = Codec::raw, .hash = {}}}};
    for (const std::uint64_t position : {64U, 4000U, 4008U, 4096U, 8192U - 88U}) {
      CHECK((position + encode_frame_header(header, position).size()) % 4096 == 0);
    }
    header.payload_size = header.entries[0].raw_size = header.entries[0].stored_size = 65535;
    CHECK(encode_frame_header(header, 64).size() == frame_fixed_size + frame_entry_size);
  }

  TEST_CASE("a frame header with any bit flipped is refused") {
    const Bytes sound = encode_frame_header(sound_frame(), 4096 - 64);
    for (std::size_t bit = 0; bit < sound.size() * 8; ++bit) {
      Bytes data = sound;
      data[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
      CHECK_THROWS_AS((void)decode_frame_header(data, 0), Damaged);
    }
  }

  TEST_CASE("a reader steps by the size of an entry and passes over what it doesn't know in it") {
    const Bytes sound = encode_frame_header(sound_frame(), 64);
    Bytes wide(sound.begin(), sound.begin() + frame_fixed_size);
    for (std::size_t i = 0; i < 2; ++i) {
      append(wide, ByteView(sound).subspan(frame_fixed_size + i * frame_entry_size, frame_entry_size));
      wide.resize(wide.size() + 16, std::byte{0x55});
    }
    store_le<std::uint64_t>(wide.data() + 8, wide.size());
    store_le<std::uint32_t>(wide.data() + 36, frame_entry_size + 16);
    store_le<std::uint64_t>(wide.data() + 40, 0);
    store_le(wide.data() + 40, xxh3_64(wide));
    const FrameHeader read = decode_frame_header(wide, 64);
    REQUIRE(read.entries.size() == 2);
    CHECK(read.entries[1].raw_size == 50);
    CHECK(read.entries[1].hash == xxh3_128(std::string_view("x")));
  }

  TEST_CASE("a frame header that is cut short is refused") {
    const Bytes sound = encode_frame_header(sound_frame(), 64);
    for (std::size_t size = 0; size < sound.size(); ++size) {
      CHECK_THROWS_AS((void)decode_frame_header(ByteView(sound).first(size), 0), Damaged);
    }
  }

  TEST_CASE("a frame header that lies under a right checksum is refused") {
    const std::vector<std::pair<const char*, std::function<void(Bytes&)>>> edits = {
        {"unknown kind", [](Bytes& d) { store_le<std::uint16_t>(d.data() + 4, 3); }},
        {"kind zero", [](Bytes& d) { store_le<std::uint16_t>(d.data() + 4, 0); }},
        {"another header size", [](Bytes& d) { store_le<std::uint64_t>(d.data() + 8, d.size() + 8); }},
        {"payload size", [](Bytes& d) { store_le<std::uint64_t>(d.data() + 16, 31); }},
        {"no entries", [](Bytes& d) { store_le<std::uint32_t>(d.data() + 32, 0); }},
        {"fewer entries", [](Bytes& d) { store_le<std::uint32_t>(d.data() + 32, 1); }},
        {"more entries", [](Bytes& d) { store_le<std::uint32_t>(d.data() + 32, 3); }},
        {"far more entries", [](Bytes& d) { store_le<std::uint32_t>(d.data() + 32, UINT32_MAX); }},
        {"raw of two sizes", [](Bytes& d) { store_le<std::uint64_t>(d.data() + 48, 11); }},
        {"sizes that overflow", [](Bytes& d) { store_le<std::uint64_t>(d.data() + 48 + 40 + 8, UINT64_MAX); }},
        {"unknown codec", [](Bytes& d) { d[48 + 40 + 16] = std::byte{5}; }},
        {"a reference without a base", [](Bytes& d) { d[48 + 40 + 16] = std::byte{3}; }},
        {"a depth without a base", [](Bytes& d) { d[48 + 40 + 17] = std::byte{1}; }},
        {"reserved field", [](Bytes& d) { d[6] = std::byte{1}; }},
        {"entries too small", [](Bytes& d) { store_le<std::uint32_t>(d.data() + 36, 39); }},
        {"entries too large", [](Bytes& d) { store_le<std::uint32_t>(d.data() + 36, 48); }},
        {"entries far too large", [](Bytes& d) { store_le<std::uint32_t>(d.data() + 36, UINT32_MAX); }},
        {"codec with high bytes", [](Bytes& d) { d[48 + 40 + 23] = std::byte{1}; }},
        {"padding",
         [](Bytes& d) {
           d.resize(d.size() + 8, std::byte{1});
           store_le<std::uint64_t>(d.data() + 8, d.size());
         }},
    };
    CHECK_NOTHROW((void)decode_frame_header(edited_frame([](Bytes&) {}), 64));
    for (const auto& [name, edit] : edits) {
      const std::string what = name;
      CAPTURE(what);
      CHECK_THROWS_AS((void)decode_frame_header(edited_frame(edit), 64), Damaged);
    }
  }

  TEST_CASE("a frame header beyond its limit is refused before it is read") {
    Bytes fixed = encode_frame_header(sound_frame(), 64);
    store_le<std::uint64_t>(fixed.data() + 8, max_frame_header + 1);
    CHECK_THROWS_AS((void)frame_header_size(fixed, 64), Damaged);
    store_le<std::uint64_t>(fixed.data() + 8, frame_fixed_size - 1);
    CHECK_THROWS_AS((void)frame_header_size(fixed, 64), Damaged);
  }
}

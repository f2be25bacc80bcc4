// SPDX-License-Identifier: Apache-2.0
// Containers as a whole: round trips of random content, the index's checks, and every bit of a small one flipped.
#include "codec/zstd_frame.hpp"
#include "format/constants.hpp"
#include "format/container_index.hpp"
#include "format/container_reader.hpp"
#include "format_support.hpp"
#include "scratch.hpp"
#include "slowness.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <numeric>

using namespace ckpt;
using namespace ckpt::format;
using format_test::column;
using format_test::Sample;
using unit_test::Scratch;

namespace {

/// Reads every block and compares; throws Damaged where the container is.
void check_content(const std::string& path, const Sample& sample) {
  const ContainerReader reader(path);
  REQUIRE(reader.index().blocks.size() == sample.blocks.size());
  BlockDecoder decoder;
  for (const FrameRecord& frame : reader.index().frames) {
    for (std::uint64_t b = frame.first_block; b < frame.first_block + frame.block_count; ++b) {
      CHECK(&reader.frame_of(b) == &frame);
      const ByteView raw = decoder.read(reader, b);
      REQUIRE(std::equal(raw.begin(), raw.end(), sample.blocks[b].begin(), sample.blocks[b].end()));
    }
  }
}

/// True if every granule has its sum.
bool sums_hold(const ContainerReader& reader, const Bytes& file) {
  const auto sums = read_sums(reader.file(), reader.footer());
  const ByteView covered = ByteView(file).first(reader.footer().sums.offset);
  if (sums.size() != (covered.size() + granule - 1) / granule) return false;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const std::size_t at = i * granule;
    if (xxh3_64(covered.subspan(at, std::min<std::size_t>(granule, covered.size() - at))) != sums[i]) return false;
  }
  return true;
}

/// What check_container() does, in short: the reader's own checks and the sums.
bool is_sound(const std::string& path, const Bytes& file) {
  try {
    return sums_hold(ContainerReader(path), file);
  } catch (const Error& error) {
    // Only these two: a flipped bit of a version or flag may look like a newer format.
    CHECK((error.code() == Errc::damaged || error.code() == Errc::unsupported));
    return false;
  }
}

Json index_document(const ContainerIndex& index) { return parse_cbor(encode_index(index), "index"); }

Bytes joined(const Sample& sample) {
  Bytes all;
  for (const Bytes& block : sample.blocks) append(all, block);
  return all;
}

}  // namespace

TEST_SUITE("format container") {
  TEST_CASE("a small container comes back, raw and compressed") {
    const Scratch scratch;
    const Sample sample = format_test::small_sample();
    const auto raw = format_test::write_container(scratch / "raw", sample);
    const auto packed = format_test::write_container(scratch / "packed", sample, true);
    CHECK(raw.root == packed.root);
    CHECK(raw.digest != packed.digest);
    CHECK(raw.size == std::filesystem::file_size(scratch / "raw"));
    CHECK(ContainerReader(scratch / "raw").digest() == raw.digest);
    check_content(scratch / "raw", sample);
    check_content(scratch / "packed", sample);
  }

  TEST_CASE("a container without blocks and one without files come back") {
    const Scratch scratch;
    for (const Sample& sample :
         {format_test::sample_of({{.path = "empty", .bytes = {}}}), format_test::sample_of({})}) {
      const std::string path = scratch / ("n" + std::to_string(sample.catalog.files.size()));
      format_test::write_container(path, sample);
      check_content(path, sample);
      CHECK(sums_hold(ContainerReader(path), format_test::read_file(path)));
    }
  }

  TEST_CASE("the same content gives the same bytes") {
    const Scratch scratch;
    const Sample sample = format_test::small_sample();
    format_test::write_container(scratch / "a", sample, true);
    format_test::write_container(scratch / "b", sample, true);
    CHECK(format_test::read_file(scratch / "a") == format_test::read_file(scratch / "b"));
  }

  TEST_CASE("random files of all sizes come back") {
    const Scratch scratch;
    format_test::Random random(7);
    for (int round = 0; round < 12; ++round) {
      std::vector<format_test::Content> files;
      for (int i = 0; i < 12; ++i) {
        const std::size_t size = random() % 5 == 0 ? random() % 6000000 : random() % 200000;
        format_test::Content file{.path = "f" + std::to_string(100 + i),
                                  .bytes = format_test::random_bytes(size, random)};
        for (std::uint64_t at = random() % 5000; at < size; at += random() % 300000) {
          const std::uint64_t length = std::min<std::uint64_t>(1 + random() % 300000, size - at);
          file.extents.push_back({.offset = at, .size = length, .dtype = DType::bfloat16});
          at += length;
        }
        files.push_back(std::move(file));
      }
      const Sample sample = format_test::sample_of(files);
      const std::string path = scratch / std::to_string(round);
      format_test::write_container(path, sample, round % 2 == 0);
      check_content(path, sample);
      const ContainerReader reader(path);
      CHECK(sums_hold(reader, format_test::read_file(path)));
      for (const FrameRecord& frame : reader.index().frames) {
        CHECK(frame.place % 8 == 0);
        if (frame.payload_size >= align_from) CHECK(frame.payload % payload_alignment == 0);
      }
      std::filesystem::remove(path);
    }
  }

  TEST_CASE("a very large number of tiny blocks can be read by way of the frame headers, too") {
    const Scratch scratch;
    std::vector<format_test::Content> files;
    for (unsigned i = 0; i < 500000 / unit_test::slowness; ++i) {
      files.push_back({.path = std::to_string(1000000 + i), .bytes = Bytes(1, static_cast<std::byte>(i & 255U))});
    }
    const Sample sample = format_test::sample_of(files);
    format_test::write_container(scratch / "c", sample);
    const ContainerReader reader(scratch / "c");
    os::AlignedBuffer buffer;
    std::uint64_t blocks = 0;
    for (const FrameRecord& frame : reader.index().frames) {
      const std::uint64_t size = frame.payload - frame.place;
      blocks += decode_frame_header(reader.file().read(frame.place, size, buffer), frame.place).entries.size();
    }
    CHECK(blocks == sample.blocks.size());
  }

  TEST_CASE("the frame headers say what the index says") {
    const Scratch scratch;
    format_test::Random random(9);
    std::vector<format_test::Content> files;
    for (int i = 0; i < 30; ++i) {
      files.push_back(
          {.path = "f" + std::to_string(10 + i), .bytes = format_test::random_bytes(random() % 3000000, random)});
    }
    const Sample sample = format_test::sample_of(files);
    format_test::write_container(scratch / "c", sample, true);
    const ContainerReader reader(scratch / "c");
    os::AlignedBuffer buffer;
    for (const FrameRecord& frame : reader.index().frames) {
      const FrameHeader header =
          decode_frame_header(reader.file().read(frame.place, frame.payload - frame.place, buffer), frame.place);
      CHECK(header.first_block == frame.first_block);
      CHECK(header.payload_size == frame.payload_size);
      REQUIRE(header.entries.size() == frame.block_count);
      for (std::uint64_t i = 0; i < frame.block_count; ++i) {
        const BlockRecord& block = reader.index().blocks[frame.first_block + i];
        CHECK(header.entries[i].raw_size == block.raw_size);
        CHECK(header.entries[i].stored_size == block.stored_size);
        CHECK(header.entries[i].codec == block.codec);
        CHECK(header.entries[i].hash == block.hash);
      }
    }
  }

  TEST_CASE("every flipped byte is found by the reader or the sums") {
    const Scratch scratch;
    const std::string path = scratch / "c";
    format_test::Random random(3);
    const Sample sample = format_test::sample_of({{.path = "a", .bytes = format_test::random_bytes(900, random)},
                                                  {.path = "b", .bytes = format_test::random_bytes(70, random)}});
    format_test::write_container(path, sample, true);
    const Bytes sound = format_test::read_file(path);
    REQUIRE(is_sound(path, sound));
    for (std::size_t at = 0; at < sound.size(); ++at) {
      Bytes damaged = sound;
      damaged[at] ^= static_cast<std::byte>(1U << random() % 8);
      format_test::write_file(path, damaged);
      CAPTURE(at);
      CHECK_FALSE(is_sound(path, damaged));
    }
  }

  TEST_CASE("a container cut short at any byte is refused") {
    const Scratch scratch;
    const std::string path = scratch / "c";
    format_test::write_container(path, format_test::sample_of({{.path = "a", .bytes = Bytes(500)}}));
    const Bytes sound = format_test::read_file(path);
    for (std::size_t size = 0; size < sound.size(); ++size) {
      format_test::write_file(path, ByteView(sound).first(size));
      CAPTURE(size);
      CHECK_THROWS_AS((void)ContainerReader(std::string(path)), Damaged);
    }
    Bytes longer = sound;
    longer.push_back(std::byte{0});
    format_test::write_file(path, longer);
    CHECK_THROWS_AS((void)ContainerReader(std::string(path)), Damaged);
  }

  TEST_CASE("a block whose bytes don't match its hash is never given out") {
    const Scratch scratch;
    const Sample sample = format_test::small_sample();
    const auto written = format_test::write_container(scratch / "c", sample, true);
    Bytes file = format_test::read_file(scratch / "c");
    for (std::size_t b = 0; b < written.index.blocks.size(); ++b) {
      Bytes damaged = file;
      damaged[written.index.blocks[b].place] ^= std::byte{1};
      format_test::write_file(scratch / "c", damaged);
      const ContainerReader reader(scratch / "c");
      BlockDecoder decoder;
      CHECK_THROWS_AS((void)decoder.read(reader, b), Damaged);
    }
  }

  TEST_CASE("a catalog or index that belongs to other content is refused") {
    const Scratch scratch;
    Sample sample = format_test::small_sample();
    ContainerWriter writer(os::open(scratch / "c", O_RDWR | O_CREAT | O_EXCL, 0644), "c", sample.catalog, 0);
    for (const Bytes& block : sample.blocks) writer.add({.stored = block, .hash = xxh3_128(ByteView(block))});
    const Bytes sound = encode_index(writer.finish().index);
    Bytes file = format_test::read_file(scratch / "c");
    // The root, with all checksums above it made right again.
    const ContainerReader reader(scratch / "c");
    Footer footer = reader.footer();
    ContainerIndex index = reader.index();
    index.root.bytes[0] ^= std::byte{1};
    const Bytes false_index = encode_index(index);
    REQUIRE(false_index.size() == sound.size());
    std::copy(false_index.begin(), false_index.end(), file.begin() + static_cast<std::ptrdiff_t>(footer.index.offset));
    footer.index.hash = xxh3_128(ByteView(false_index));
    const Bytes end = encode_footer(footer);
    std::copy(end.begin(), end.end(), file.end() - static_cast<std::ptrdiff_t>(footer_size));
    format_test::write_file(scratch / "c", file);
    CHECK_THROWS_WITH_AS(ContainerReader(scratch / "c"), doctest::Contains("root"), Damaged);
  }
}

TEST_SUITE("format index") {
  TEST_CASE("an index comes back as it was written") {
    const Scratch scratch;
    const auto written = format_test::write_container(scratch / "c", format_test::small_sample(), true);
    const ContainerIndex read = decode_index(encode_index(written.index), written.size);
    CHECK(read.root == written.root);
    CHECK(read.catalog.place == written.index.catalog.place);
    CHECK(read.catalog.raw_size == written.index.catalog.raw_size);
    CHECK(read.catalog.stored_size == written.index.catalog.stored_size);
    CHECK(read.catalog.codec == written.index.catalog.codec);
    CHECK(read.catalog.hash == written.index.catalog.hash);
    REQUIRE(read.frames.size() == written.index.frames.size());
    CHECK(read.frames[0].first_block == 0);
    REQUIRE(read.blocks.size() == 2);
    CHECK(read.blocks[1].place == written.index.blocks[1].place);
    CHECK(read.blocks[1].hash == written.index.blocks[1].hash);
  }

  TEST_CASE("an index that says what can't be is refused") {
    // Three blocks in two frames: [0, 1] and [2].
    const std::uint64_t end = 10000;
    ContainerIndex sound;
    sound.catalog = {.raw_size = 10, .stored_size = 10, .place = 152, .codec = Codec::raw, .hash = {}};
    sound.blocks = {{.raw_size = 100, .stored_size = 100, .place = 1000, .codec = Codec::raw, .hash = {}},
                    {.raw_size = 100, .stored_size = 50, .place = 1100, .codec = Codec::zstd, .hash = {}},
                    {.raw_size = 20, .stored_size = 20, .place = 2000, .codec = Codec::raw, .hash = {}}};
    sound.frames = {{.place = 800, .payload = 1000, .payload_size = 150, .first_block = 0, .block_count = 2},
                    {.place = 1152, .payload = 2000, .payload_size = 20, .first_block = 2, .block_count = 1}};
    CHECK_NOTHROW((void)decode_index(encode_index(sound), end));

    const auto set = [](const char* table, const char* name, std::vector<std::uint64_t> values) {
      return [=](Json& d) { d[table][name] = column(values); };
    };
    const auto set_bytes = [](const char* table, const char* name, std::vector<std::uint8_t> values) {
      return [=](Json& d) { d[table][name] = Json::binary(values); };
    };
    const std::vector<std::function<void(Json&)>> edits = {
        set("blocks", "raw_size", {0, 100, 20}),
        set("blocks", "raw_size", {block_size + 1, 100, 20}),
        set("blocks", "raw_size", {100, 50, 20}),   // compressed, and not smaller
        set("blocks", "raw_size", {101, 100, 20}),  // raw of two sizes
        set("blocks", "raw_size", {100, 100}),
        set("blocks", "stored_size", {100, 49, 20}),
        set("blocks", "stored_size", {100, 51, 20}),
        set("blocks", "place", {1000, 1099, 2000}),
        set("blocks", "place", {1000, 1101, 2000}),
        set("blocks", "place", {999, 1100, 2000}),
        set("blocks", "place", {UINT64_MAX, 1100, 2000}),
        set_bytes("blocks", "codec", {0, codec_count, 0}),
        set_bytes("blocks", "codec", {0, 0, 0}),
        set_bytes("blocks", "hash", std::vector<std::uint8_t>(47)),
        set("frames", "blocks", {1, 2}),
        set("frames", "blocks", {2, 0}),
        set("frames", "blocks", {3, 1}),
        set("frames", "blocks", {0, 3}),
        set("frames", "blocks", {UINT64_MAX, 1}),
        set("frames", "blocks", {2, UINT64_MAX}),
        set("frames", "place", {63, 1152}),
        set("frames", "place", {800, 1149}),   // begins inside the frame before
        set("frames", "place", {1001, 1152}),  // behind its own payload
        set("frames", "payload", {1000, 2001}),
        set("frames", "payload_size", {151, 20}),
        set("frames", "payload_size", {150, 8001}),
        set("frames", "payload_size", {150, UINT64_MAX}),
        set("catalog", "place", {9991}),
        set("catalog", "place", {UINT64_MAX}),
        set("catalog", "stored_size", {UINT64_MAX}),
        set("catalog", "raw_size", {max_catalog_size + 1}),
        set("catalog", "raw_size", {1, 2}),
        set("catalog", "raw_size", {}),
        set_bytes("catalog", "codec", {codec_count}),
        set_bytes("catalog", "hash", std::vector<std::uint8_t>(15)),
        set_bytes("shard", "root", std::vector<std::uint8_t>(17)),
    };
    for (std::size_t i = 0; i < edits.size(); ++i) {
      CAPTURE(i);
      Json document = index_document(sound);
      edits[i](document);
      CHECK_THROWS_AS((void)decode_index(dump_cbor(document), end), Damaged);
    }
    CHECK_THROWS_AS((void)decode_index(encode_index(sound), 2019), Damaged);
  }

  TEST_CASE("unknown tables and columns of an index are passed over, missing ones are not") {
    ContainerIndex index;
    Json document = index_document(index);
    document["later"] = 1;
    document["blocks"]["base"] = Json::binary({1, 2, 3});
    CHECK_NOTHROW((void)decode_index(dump_cbor(document), 1000));
    const Json sound = index_document(index);
    for (const auto& [table, members] : sound.items()) {
      for (const auto& [name, value] : members.items()) {
        Json less = sound;
        less[table].erase(name);
        CHECK_THROWS_AS((void)decode_index(dump_cbor(less), 1000), Damaged);
      }
    }
  }

  TEST_CASE("the root depends on content and names, not on time, owner, metadata or encoding") {
    const Sample sample = format_test::small_sample();
    std::vector<Digest> hashes;
    for (const Bytes& block : sample.blocks) hashes.push_back(xxh3_128(ByteView(block)));
    const Digest root = shard_root(sample.catalog, hashes);
    const auto edited = [&](const std::function<void(Catalog&)>& edit) {
      Catalog catalog = sample.catalog;
      edit(catalog);
      return shard_root(catalog, hashes);
    };
    CHECK(edited([](Catalog& c) { c.files[2].mtime_ns = 77; }) == root);
    CHECK(edited([](Catalog& c) { c.files[2].uid = 77; }) == root);
    CHECK(edited([](Catalog& c) { c.files[2].kind = FileKind::npy; }) == root);
    CHECK(edited([](Catalog& c) { c.files[2].note = "other"; }) == root);
    CHECK(edited([](Catalog& c) { c.shard.meta.clear(); }) == root);
    CHECK(edited([](Catalog& c) { c.tensors[0].name = "other"; }) == root);
    CHECK(edited([](Catalog& c) { c.files[2].mode = 0600; }) != root);
    CHECK(edited([](Catalog& c) { c.files[2].path = "a/two"; }) != root);
    CHECK(edited([](Catalog& c) { c.files[4].target = "b"; }) != root);
    CHECK(edited([](Catalog& c) { c.files[4].type = EntryType::hardlink; }) != root);
    CHECK(edited([](Catalog& c) { c.files[2].size = 301; }) != root);
    CHECK(edited([](Catalog& c) { c.block_sizes[0] = 299; }) != root);
    hashes[0].bytes[0] ^= std::byte{1};
    CHECK(shard_root(sample.catalog, hashes) != root);
    CHECK(joined(sample).size() == sample.catalog.raw_bytes());
  }

  TEST_CASE("an id is the hash of ranks and roots, byte for byte") {
    const Digest a = xxh3_128(std::string_view("a"));
    const Digest b = xxh3_128(std::string_view("b"));
    Bytes spelled;
    append_le<std::uint32_t>(spelled, 0);
    append(spelled, a.bytes);
    append_le<std::uint32_t>(spelled, 1);
    append(spelled, b.bytes);
    CHECK(checkpoint_id({a, b}) == xxh3_128(ByteView(spelled)));
    CHECK(checkpoint_id({a, b}) != checkpoint_id({b, a}));
  }

  TEST_CASE("a root is the hash of the entries, byte for byte") {
    const Sample sample = format_test::sample_of({{.path = "f", .bytes = Bytes(3, std::byte{'x'})}});
    const Digest hash = xxh3_128(ByteView(sample.blocks[0]));
    Bytes spelled;
    append_le<std::uint8_t>(spelled, 0);
    append_le<std::uint32_t>(spelled, 0644);
    append_le<std::uint64_t>(spelled, 1);
    append(spelled, as_bytes("f"));
    append_le<std::uint64_t>(spelled, 0);
    append_le<std::uint64_t>(spelled, 3);
    append_le<std::uint64_t>(spelled, 1);
    append_le<std::uint64_t>(spelled, 3);
    append(spelled, hash.bytes);
    CHECK(shard_root(sample.catalog, {hash}) == xxh3_128(ByteView(spelled)));
  }
}

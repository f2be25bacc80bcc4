// SPDX-License-Identifier: Apache-2.0
// Fuzzes all that reads a store's bytes. The first byte chooses the reader; checksums are made right first, so that the
// fuzzer gets behind them. What is accepted must be written and accepted again.
#include "format/catalog.hpp"
#include "format/constants.hpp"
#include "format/container_index.hpp"
#include "format/container_reader.hpp"
#include "format/damaged.hpp"
#include "format/ends.hpp"
#include "format/frame.hpp"
#include "format/manifest.hpp"
#include "format/rfc3339.hpp"
#include "format/sealed_json.hpp"
#include "store/layout.hpp"

#include <ckpt/address.hpp>
#include <ckpt/error.hpp>

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using namespace ckpt;
using namespace ckpt::format;

void require(bool condition) {
  if (!condition) std::abort();
}

void put_digest(Bytes& file, std::size_t at, const Digest& digest) {
  std::copy(digest.bytes.begin(), digest.bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
}

/// Makes a section's hash right if the footer names a place in the file.
void mend_section(Bytes& file, std::size_t field) {
  const auto offset = load_le<std::uint64_t>(file.data() + field);
  const auto size = load_le<std::uint64_t>(file.data() + field + 8);
  if (!lies_within(offset, size, file.size())) return;
  put_digest(file, field + 16, xxh3_128(ByteView(file).subspan(offset, size)));
}

Bytes with_checksums(ByteView data) {
  Bytes file(data.begin(), data.end());
  if (file.size() < header_size + footer_size) return file;
  const Bytes header = encode_header({});
  std::copy_n(header.begin(), 8, file.begin());
  store_le(file.data() + 56, xxh3_64(ByteView(file).first(56)));
  const std::size_t footer = file.size() - footer_size;
  mend_section(file, footer);
  mend_section(file, footer + 32);
  store_le<std::uint64_t>(file.data() + footer + 64, file.size());
  put_digest(file, footer + 104, xxh3_128(ByteView(file).subspan(footer, 104)));
  const Bytes magic = encode_footer({});
  std::copy_n(magic.end() - 8, 8, file.end() - 8);
  return file;
}

void read_container(ByteView data) {
  const int fd = ::memfd_create("fuzz", MFD_CLOEXEC);
  if (fd < 0) return;
  const os::Fd owner(fd);
  os::write_all(owner, with_checksums(data), "memory");
  const ContainerReader reader("/proc/self/fd/" + std::to_string(fd));
  (void)read_sums(reader.file(), reader.footer());
  BlockDecoder decoder;
  for (std::uint64_t b = 0; b < reader.index().blocks.size(); ++b) {
    try {
      (void)decoder.read(reader, b);
    } catch (const Damaged&) {
      continue;
    }
  }
}

void read_catalog(ByteView data) {
  const Catalog catalog = decode_catalog(data);
  const Catalog again = decode_catalog(encode_catalog(catalog));
  require(again.files.size() == catalog.files.size() && again.tensors == catalog.tensors &&
          again.extents == catalog.extents && again.block_sizes == catalog.block_sizes);
}

void read_index(ByteView data) {
  const ContainerIndex index = decode_index(data, 1U << 20U);
  const ContainerIndex again = decode_index(encode_index(index), 1U << 20U);
  require(again.blocks.size() == index.blocks.size() && again.root == index.root);
}

void read_frame_header(ByteView data) {
  Bytes header(data.begin(), data.end());
  if (header.size() >= frame_fixed_size) {
    store_le<std::uint64_t>(header.data() + 40, 0);
    store_le(header.data() + 40, xxh3_64(header));
  }
  const FrameHeader frame = decode_frame_header(header, 0);
  require(decode_frame_header(encode_frame_header(frame, 0), 0).entries.size() == frame.entries.size());
}

/// The text is what stands before the seal.
void read_json(ByteView data, bool manifest) {
  std::string text(as_text(data));
  text += "  \"xxh3_128\": \"" + to_hex(xxh3_128(std::string_view(text))) + "\"\n}\n";
  if (!manifest) return check_store_description(text, "x", true);
  const Manifest read = decode_manifest(text, "x");
  const Manifest again = decode_manifest(encode_manifest(read), "x");
  require(again.id == read.id && again.shards.size() == read.shards.size());
}

void read_names(std::string_view text) {
  if (const auto set = store::parse_set_name(text)) require(store::parse_set_name(store::set_name(*set)) == *set);
  if (const auto shard = store::parse_shard_name(text))
    require(store::parse_shard_name(store::shard_name(*shard)).has_value());
  if (const auto time = from_rfc3339(text)) require(rfc3339(*time) == text);
  (void)stays_inside("a/b", text);
  require(!is_safe_path(text) || text.front() != '/');
  const Address address = parse_address(text);
  require(parse_address(to_string(address)).selector == address.selector);
}

void read(unsigned how, ByteView data) {
  switch (how % 8) {
    case 0: return read_catalog(data);
    case 1: return read_index(data);
    case 2: return read_frame_header(data);
    case 3: return read_json(data, true);
    case 4: return read_json(data, false);
    case 5: return read_container(data);
    case 6: return read_names(as_text(data));
    default: static_cast<void>(unseal(as_text(data), "x"));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const ByteView bytes = std::as_bytes(std::span(data, size));
  try {
    read(data[0], bytes.subspan(1));
  } catch (const Error&) {
    return 0;  // the right answer to bytes that aren't a store's
  }
  return 0;
}

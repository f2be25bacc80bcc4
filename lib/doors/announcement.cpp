// SPDX-License-Identifier: Apache-2.0
#include "doors/announcement.hpp"

#include "format/cbor_table.hpp"
#include "format/damaged.hpp"
#include "format/path_rules.hpp"

#include <array>
#include <cmath>
#include <string_view>
#include <utility>

namespace ckpt::doors {
namespace {

using format::Damaged;
using format::EntryType;
using format::FileEntry;
using format::Json;
using format::TableReader;
using format::TableWriter;

constexpr const char* document_format = "ckpt-queue";
constexpr std::uint64_t version = 1;
constexpr std::size_t seal_size = sizeof(Digest::bytes);
constexpr double nanosecond = 1e-9;

Json encode_entries(const std::vector<FileEntry>& entries) {
  std::vector<std::string_view> paths, targets;
  std::vector<std::uint8_t> types;
  std::vector<std::uint32_t> modes, uids, gids;
  std::vector<std::uint64_t> sizes;
  std::vector<std::int64_t> mtimes;
  for (const FileEntry& entry : entries) {
    paths.push_back(entry.path);
    targets.push_back(entry.target);
    types.push_back(static_cast<std::uint8_t>(entry.type));
    modes.push_back(entry.mode);
    sizes.push_back(entry.size);
    mtimes.push_back(entry.mtime_ns);
    if (entry.uid) uids.push_back(*entry.uid);
    if (entry.gid) gids.push_back(*entry.gid);
  }
  TableWriter table;
  table.add_texts("path", paths);
  table.add_texts("target", targets);
  table.add("type", types);
  table.add("mode", modes);
  table.add("size", sizes);
  table.add("mtime_ns", mtimes);
  if (!entries.empty() && uids.size() == entries.size() && gids.size() == entries.size()) {
    table.add("uid", uids);
    table.add("gid", gids);
  }
  return std::move(table).take();
}

std::vector<FileEntry> decode_entries(const Json& document) {
  const TableReader table(document, "files");
  const auto types = table.numbers<std::uint8_t>("type");
  const std::size_t count = types.size();
  const auto paths = table.texts("path", count);
  const auto targets = table.texts("target", count);
  const auto modes = table.numbers<std::uint32_t>("mode", count);
  const auto sizes = table.numbers<std::uint64_t>("size", count);
  const auto mtimes = table.numbers<std::int64_t>("mtime_ns", count);
  const bool owners = table.has("uid");
  const auto uids = owners ? table.numbers<std::uint32_t>("uid", count) : std::vector<std::uint32_t>{};
  const auto gids = owners ? table.numbers<std::uint32_t>("gid", count) : std::vector<std::uint32_t>{};
  std::vector<FileEntry> entries(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (types[i] > static_cast<std::uint8_t>(EntryType::hardlink)) table.fail("type", "has an unknown value");
    if (modes[i] > 07777) table.fail("mode", "has an impossible value");
    FileEntry& entry = entries[i];
    entry.path = paths[i];
    entry.type = static_cast<EntryType>(types[i]);
    entry.mode = modes[i];
    entry.size = sizes[i];
    entry.mtime_ns = mtimes[i];
    entry.target = targets[i];
    if (entry.type != EntryType::file && entry.size != 0) table.fail("size", "is given for what is no file");
    if (entry.target.find('\0') != std::string::npos) table.fail("target", "holds a NUL");
    const bool is_link = entry.type == EntryType::symlink || entry.type == EntryType::hardlink;
    if (is_link == entry.target.empty()) table.fail("target", "doesn't go with the type");
    if (entry.type == EntryType::symlink && !format::stays_inside(entry.path, entry.target))
      table.fail("target", "leads out of the tree");
    if (owners) {
      entry.uid = uids[i];
      entry.gid = gids[i];
    }
  }
  format::check_paths(entries);
  return entries;
}

class Fields {
 public:
  Fields(const Json& document, const std::string& name) : document_(document), name_(name) {}

  [[noreturn]] void fail(const std::string& why) const {
    throw Damaged(DamageKind::altered, 0, 0, "'" + name_ + "': " + why);
  }

  [[nodiscard]] std::uint64_t number(const char* key, std::uint64_t least, std::uint64_t most) const {
    const Json& value = at(key);
    if (!value.is_number_unsigned()) fail(std::string("field '") + key + "' is not a number");
    const auto number = value.get<std::uint64_t>();
    if (number < least || number > most) fail(std::string("field '") + key + "' is out of bounds");
    return number;
  }

  [[nodiscard]] bool truth(const char* key) const {
    const Json& value = at(key);
    if (!value.is_boolean()) fail(std::string("field '") + key + "' is neither true nor false");
    return value.get<bool>();
  }

  [[nodiscard]] ByteView bytes(const char* key) const {
    const Json& value = at(key);
    if (!value.is_binary()) fail(std::string("field '") + key + "' is no bytes");
    const auto& packed = value.get_binary();
    return std::as_bytes(std::span(packed.data(), packed.size()));
  }

 private:
  [[nodiscard]] const Json& at(const char* key) const {
    const auto found = document_.find(key);
    if (found == document_.end()) fail(std::string("field '") + key + "' is missing");
    return *found;
  }

  const Json& document_;
  const std::string& name_;
};

Json binary_of(ByteView bytes) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  return Json::binary(std::vector<std::uint8_t>(begin, begin + bytes.size()));
}

std::uint64_t sum_of_sizes(const std::vector<FileEntry>& entries, const Fields& fields) {
  std::uint64_t sum = 0;
  for (const FileEntry& entry : entries) {
    const auto more = checked_add(sum, entry.size);
    if (!more) fields.fail("the files are larger than anything");
    sum = *more;
  }
  return sum;
}

}  // namespace

std::uint64_t piece_count(std::uint64_t bytes, std::uint64_t piece_size) {
  return bytes / piece_size + (bytes % piece_size == 0 ? 0 : 1);
}

Digest piece_digest(const std::string& shard, std::uint64_t number, ByteView bytes) {
  std::array<std::byte, sizeof number> packed{};
  store_le(packed.data(), number);
  Hasher hasher;
  hasher.update(shard);
  hasher.update(packed);
  hasher.update(bytes);
  return hasher.digest();
}

Bytes encode_announcement(const Announcement& announcement) {
  if (announcement.pieces > max_pieces) {
    throw Error(Errc::invalid_argument,
                "the state is too large for a queue: " + std::to_string(announcement.bytes) + " bytes in one shard");
  }
  const Json document = {
      {"format", document_format},
      {"version", version},
      {"ticket", binary_of(as_bytes(encode_ticket(announcement.ticket)))},
      {"files", encode_entries(announcement.entries)},
      {"piece_size", announcement.piece_size},
      {"pieces", announcement.pieces},
      {"bytes", announcement.bytes},
      {"digest", binary_of(announcement.digest.bytes)},
      {"stall_ns", static_cast<std::uint64_t>(std::llround(announcement.stall_seconds / nanosecond))},
      {"wants_outcome", announcement.wants_outcome}};
  Bytes bytes = format::dump_cbor(document);
  append(bytes, xxh3_128(ByteView(bytes)).bytes);
  if (bytes.size() > max_announcement_size) {
    throw Error(Errc::invalid_argument,
                "the state has too many files for a queue: " + std::to_string(announcement.entries.size()));
  }
  return bytes;
}

Announcement decode_announcement(ByteView bytes, const std::string& name) {
  if (bytes.size() < seal_size || bytes.size() > max_announcement_size)
    throw Damaged(DamageKind::truncated, 0, bytes.size(), "'" + name + "' has an impossible size");
  const ByteView body = bytes.first(bytes.size() - seal_size);
  const Digest sealed = xxh3_128(body);
  if (!std::equal(sealed.bytes.begin(), sealed.bytes.end(), bytes.end() - seal_size))
    throw Damaged(DamageKind::altered, 0, bytes.size(), "'" + name + "' doesn't match its checksum");
  const Json document = format::parse_cbor(body, "announcement");
  const Fields fields(document, name);
  if (document.value("format", Json()) != Json(document_format)) fields.fail("it is something else");
  if (fields.number("version", 1, UINT64_MAX) > version)
    throw Error(Errc::unsupported, "a newer version of ckpt wrote '" + name + "'");

  Announcement announcement;
  const ByteView ticket = fields.bytes("ticket");
  if (ticket.size() > max_ticket_size) fields.fail("field 'ticket' is too large");
  announcement.ticket = decode_ticket(as_text(ticket), name);
  announcement.entries = decode_entries(document);
  announcement.piece_size = fields.number("piece_size", 1, max_piece_size);
  announcement.pieces = fields.number("pieces", 0, max_pieces);
  announcement.bytes = fields.number("bytes", 0, max_pieces * max_piece_size);
  if (announcement.bytes != sum_of_sizes(announcement.entries, fields)) fields.fail("the sizes don't add up");
  if (announcement.pieces != piece_count(announcement.bytes, announcement.piece_size))
    fields.fail("the number of pieces doesn't go with the size");
  const ByteView digest = fields.bytes("digest");
  if (digest.size() != seal_size) fields.fail("field 'digest' is no digest");
  std::copy(digest.begin(), digest.end(), announcement.digest.bytes.begin());
  announcement.stall_seconds = static_cast<double>(fields.number("stall_ns", 0, INT64_MAX)) * nanosecond;
  announcement.wants_outcome = fields.truth("wants_outcome");
  return announcement;
}

}  // namespace ckpt::doors

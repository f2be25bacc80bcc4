// SPDX-License-Identifier: Apache-2.0
// From the end record, perhaps by way of its 64-bit form, to the central directory, and from there to the local
// headers, which are read in windows: neighbours cost one read together.
#include "source/zip_directory.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ckpt::source {
namespace {

constexpr std::uint32_t local_signature = 0x04034b50;
constexpr std::uint32_t entry_signature = 0x02014b50;
constexpr std::uint32_t end_signature = 0x06054b50;
constexpr std::uint32_t end64_signature = 0x06064b50;
constexpr std::uint32_t locator_signature = 0x07064b50;
constexpr std::uint64_t local_size = 30;
constexpr std::uint64_t entry_size = 46;
constexpr std::uint64_t end_size = 22;
constexpr std::uint64_t end64_size = 56;
constexpr std::uint64_t locator_size = 20;
constexpr std::uint32_t saturated = 0xffffffffU;

struct EndRecord {
  std::uint64_t position = 0;  ///< in the file
  std::uint64_t entries = 0;
  std::uint64_t size = 0;    ///< of the central directory
  std::uint64_t offset = 0;  ///< of it, from the archive's start
  bool exact = false;        ///< `entries` is the whole count, not its low 16 bits
};

HugeTable<std::byte> read_bytes(const Input& input, std::uint64_t offset, std::uint64_t size) {
  HugeTable<std::byte> bytes(static_cast<std::size_t>(size));
  if (size > 0) input.read(offset, bytes);
  return bytes;
}

/// Replaces what doesn't fit the end record by the 64-bit record's numbers, where there's one. `limit` is where the
/// archive may start at the earliest.
void widen(const Input& input, std::uint64_t begin, EndRecord& record) {
  if (record.position < begin + locator_size + end64_size) return;
  const HugeTable<std::byte> locator = read_bytes(input, record.position - locator_size, locator_size);
  if (load_le<std::uint32_t>(locator.data()) != locator_signature) return;
  const auto at = checked_add(begin, load_le<std::uint64_t>(locator.data() + 8));
  if (!at || !lies_within(*at, end64_size, record.position - locator_size)) return;
  const HugeTable<std::byte> end64 = read_bytes(input, *at, end64_size);
  if (load_le<std::uint32_t>(end64.data()) != end64_signature) return;
  record.entries = load_le<std::uint64_t>(end64.data() + 32);
  record.size = load_le<std::uint64_t>(end64.data() + 40);
  record.offset = load_le<std::uint64_t>(end64.data() + 48);
  record.exact = true;
}

EndRecord parse_end(const std::byte* from, std::uint64_t position) {
  EndRecord record;
  record.position = position;
  record.entries = load_le<std::uint16_t>(from + 10);
  record.size = load_le<std::uint32_t>(from + 12);
  record.offset = load_le<std::uint32_t>(from + 16);
  return record;
}

bool needs_widening(const EndRecord& record) {
  return record.entries == 0xffffU || record.size == saturated || record.offset == saturated;
}

struct EndSearch {
  std::optional<EndRecord> record;
  bool seen = false;  ///< a signature is there, whatever it says
};

/// Looks through the last `reach` bytes, backwards.
EndSearch find_end(const Input& input, std::uint64_t begin, std::uint64_t end, std::uint64_t reach) {
  EndSearch search;
  const std::uint64_t tail_size = std::min(reach, end - begin);
  if (tail_size < end_size) return search;
  const std::uint64_t tail_begin = end - tail_size;
  const HugeTable<std::byte> tail = read_bytes(input, tail_begin, tail_size);
  for (std::uint64_t i = tail_size - end_size + 1; i-- > 0;) {
    const std::byte* const at = tail.data() + i;
    if (load_le<std::uint32_t>(at) != end_signature) continue;
    search.seen = true;
    if (i + end_size + load_le<std::uint16_t>(at + 20) > tail_size) continue;
    EndRecord record = parse_end(at, tail_begin + i);
    if (needs_widening(record)) widen(input, begin, record);
    if (!lies_within(record.offset, record.size, record.position - begin)) continue;
    search.record = record;
    return search;
  }
  return search;
}

/// Takes the 64-bit forms of an entry's saturated fields from its extra field.
bool widen_entry(ByteView extra, std::uint64_t& raw, std::uint64_t& stored, std::uint64_t& header) {
  if (raw != saturated && stored != saturated && header != saturated) return true;
  ByteReader reader(extra);
  while (const auto id = reader.number<std::uint16_t>()) {
    const auto size = reader.number<std::uint16_t>();
    const auto field = size ? reader.take(*size) : std::nullopt;
    if (!field) return false;
    if (*id != 1) continue;
    ByteReader values(*field);
    for (std::uint64_t* const number : {&raw, &stored, &header}) {
      if (*number != saturated) continue;
      const auto value = values.number<std::uint64_t>();
      if (!value) return false;
      *number = *value;
    }
    return true;
  }
  return true;
}

/// The entry at the reader's position, or nothing if it isn't one.
std::optional<ZipEntry> parse_entry(ByteReader& reader, std::uint64_t begin, std::uint64_t directory) {
  const auto fixed = reader.take(entry_size);
  if (!fixed || load_le<std::uint32_t>(fixed->data()) != entry_signature) return std::nullopt;
  const std::byte* const at = fixed->data();
  const auto flags = load_le<std::uint16_t>(at + 8);
  const auto method = load_le<std::uint16_t>(at + 10);
  std::uint64_t stored = load_le<std::uint32_t>(at + 20);
  std::uint64_t raw = load_le<std::uint32_t>(at + 24);
  std::uint64_t header = load_le<std::uint32_t>(at + 42);
  const auto name = reader.take(load_le<std::uint16_t>(at + 28));
  const auto extra = reader.take(load_le<std::uint16_t>(at + 30));
  const auto comment = reader.take(load_le<std::uint16_t>(at + 32));
  if (!name || !extra || !comment || !widen_entry(*extra, raw, stored, header)) return std::nullopt;

  ZipEntry entry;
  entry.name = as_text(*name);
  entry.stored = method == 0 && (flags & 1U) == 0;
  entry.size = stored;
  if (entry.stored && raw != stored) return std::nullopt;
  const auto absolute = checked_add(begin, header);
  const auto needed = checked_add(local_size, stored);
  if (!absolute || !needed || !lies_within(*absolute, *needed, directory)) return std::nullopt;
  entry.header = *absolute;
  return entry;
}

ZipResult failure(ZipStatus status, std::string message) {
  ZipResult result;
  result.status = status;
  result.message = std::move(message);
  return result;
}

}  // namespace

ZipResult read_zip_directory(const Input& input, std::uint64_t begin, std::uint64_t end) {
  EndSearch search = find_end(input, begin, end, 4096);
  if (!search.record) search = find_end(input, begin, end, end_size + 0xffff);
  if (!search.record && !search.seen) {
    return failure(ZipStatus::cut_short,
                   "cut short: there's no end record of a zip in its last bytes, before offset " + std::to_string(end));
  }
  if (!search.record) return failure(ZipStatus::altered, "altered: the zip's end record points outside the file");
  const EndRecord& record = *search.record;
  if (record.size > max_zip_directory) {
    return failure(ZipStatus::refused, "the zip's directory is larger than 128 MiB");
  }

  ZipResult result;
  ZipDirectory& directory = result.directory;
  directory.begin = begin;
  directory.directory = begin + record.offset;
  directory.bytes = read_bytes(input, directory.directory, record.size);
  directory.entries.reserve(static_cast<std::size_t>(std::min(record.entries, record.size / entry_size)));
  ByteReader reader(directory.bytes);
  while (reader.remaining() > 0) {
    const std::uint64_t at = directory.directory + reader.position();
    const auto entry = parse_entry(reader, begin, directory.directory);
    if (!entry) {
      return failure(ZipStatus::altered, "altered: entry " + std::to_string(directory.entries.size()) +
                                             " of the zip's directory is wrong, at offset " + std::to_string(at));
    }
    directory.entries.push_back(*entry);
  }
  const std::uint64_t count = directory.entries.size();
  // Some writers keep the low 16 bits of a larger count.
  if (record.exact ? record.entries != count : record.entries != (count & 0xffffU)) {
    return failure(ZipStatus::altered, "altered: the zip's directory has " + std::to_string(count) +
                                           " entries where its end record, at offset " +
                                           std::to_string(record.position) + ", says " +
                                           std::to_string(record.entries));
  }
  return result;
}

std::optional<std::uint64_t> find_zip_begin(const Input& input, std::uint64_t end) {
  if (end < end_size) return std::nullopt;
  const std::uint64_t position = end - end_size;
  const HugeTable<std::byte> bytes = read_bytes(input, position, end_size);
  if (load_le<std::uint32_t>(bytes.data()) != end_signature) return std::nullopt;
  EndRecord record = parse_end(bytes.data(), position);
  std::uint64_t records = 0;
  if (position >= locator_size + end64_size) {
    // Without knowing where the archive starts, the 64-bit record can only be looked for where writers put it.
    const HugeTable<std::byte> before =
        read_bytes(input, position - locator_size - end64_size, locator_size + end64_size);
    const bool wide = load_le<std::uint32_t>(before.data()) == end64_signature &&
                      load_le<std::uint32_t>(before.data() + end64_size) == locator_signature;
    if (wide) {
      records = locator_size + end64_size;
      record.size = load_le<std::uint64_t>(before.data() + 40);
      record.offset = load_le<std::uint64_t>(before.data() + 48);
    }
  }
  const auto before_end = checked_add(record.size, record.offset);
  if (!before_end || *before_end > position - records) return std::nullopt;
  return position - records - *before_end;
}

std::optional<std::string> locate_zip_data(const Input& input, const ZipDirectory& directory,
                                           std::span<const std::uint32_t> wanted, std::vector<std::uint64_t>& starts) {
  constexpr std::uint64_t window_size = std::uint64_t{1} << 20U;
  constexpr std::uint64_t worth_reading = 8192;  // up to here a gap costs less than another read

  const auto& entries = directory.entries;
  std::vector<std::uint32_t> order(wanted.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto by_header = [&](std::uint32_t a, std::uint32_t b) {
    return entries[wanted[a]].header < entries[wanted[b]].header;
  };
  if (!std::is_sorted(order.begin(), order.end(), by_header)) std::stable_sort(order.begin(), order.end(), by_header);

  starts.assign(wanted.size(), 0);
  HugeTable<std::byte> window;
  std::uint64_t window_begin = 0;
  std::uint64_t window_end = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const ZipEntry& entry = entries[wanted[order[i]]];
    if (entry.header + local_size > window_end || i == 0) {
      window_begin = entry.header;
      window_end = entry.header + local_size;
      for (std::size_t next = i + 1; next < order.size(); ++next) {
        const std::uint64_t header = entries[wanted[order[next]]].header;
        if (header > window_end + worth_reading || header + local_size - window_begin > window_size) break;
        window_end = std::max(window_end, header + local_size);
      }
      window.resize(static_cast<std::size_t>(window_end - window_begin));
      input.read(window_begin, window);
    }
    const std::byte* const at = window.data() + (entry.header - window_begin);
    const std::uint64_t lengths = std::uint64_t{load_le<std::uint16_t>(at + 26)} + load_le<std::uint16_t>(at + 28);
    const std::uint64_t start = entry.header + local_size + lengths;
    if (load_le<std::uint32_t>(at) != local_signature || !lies_within(start, entry.size, directory.directory)) {
      return "altered: the zip entry '" + std::string(entry.name) + "' has no good header at offset " +
             std::to_string(entry.header);
    }
    starts[order[i]] = start;
  }
  return std::nullopt;
}

}  // namespace ckpt::source

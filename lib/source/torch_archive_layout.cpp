// SPDX-License-Identifier: Apache-2.0
#include "source/torch_archive_layout.hpp"

#include "core/crc32.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace ckpt::source {
namespace {

constexpr std::uint64_t alignment = 64;
constexpr std::uint64_t least_zip64 = 0xffffffff;
constexpr std::uint64_t least_many = 0xffff;
constexpr std::uint16_t has_descriptor = 8;
constexpr std::uint16_t first_day = 0x21;  // of 1980: the archive shall not depend on the time

template <FixedWidth T>
void put(std::string& to, T value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof value);
  store_le(std::as_writable_bytes(std::span(to)).data() + at, value);
}

}  // namespace

void TorchArchiveLayout::add(std::string_view name, ByteView bytes) {
  begin({.name = prefix_ + "/" + std::string(name), .size = bytes.size(), .checksum = crc32(0, bytes)});
  literal() += as_text(bytes);
}

void TorchArchiveLayout::add_content(std::string_view name, std::size_t content, std::uint64_t size) {
  begin({.name = prefix_ + "/" + std::string(name), .size = size, .content = content});
  segments_.back().content = content;
  at_ += size + literal().size();
  segments_.emplace_back();
  put(literal(), std::uint32_t{0x08074b50});
  put_checksum(records_.back());
  for (int i = 0; i < 2; ++i) {
    size < least_zip64 ? put(literal(), static_cast<std::uint32_t>(size)) : put(literal(), size);
  }
}

std::vector<ArchiveSegment> TorchArchiveLayout::finish() {
  const std::uint64_t directory = position();
  for (const Record& record : records_) put_entry(record);
  put_end(directory, position());
  records_.clear();
  at_ = 0;
  return std::exchange(segments_, std::vector<ArchiveSegment>(1));
}

void TorchArchiveLayout::put_checksum(const Record& record) {
  if (record.content) segments_.back().checksums.push_back({.at = literal().size(), .content = *record.content});
  put(literal(), record.checksum);
}

/// Method, time, checksum, sizes and the lengths of name and extra fields; both kinds of headers have these.
void TorchArchiveLayout::put_common(const Record& record, bool local, std::uint16_t extra) {
  const bool later = local && record.content.has_value();
  const bool large = record.size >= least_zip64;
  const auto shown = static_cast<std::uint32_t>(large ? least_zip64 : later ? 0 : record.size);
  put(literal(), std::uint16_t{45});
  put(literal(), record.content ? has_descriptor : std::uint16_t{0});
  put(literal(), std::uint32_t{0});
  put(literal(), first_day);
  if (later) {
    put(literal(), std::uint32_t{0});
  } else {
    put_checksum(record);
  }
  put(literal(), shown);
  put(literal(), shown);
  put(literal(), static_cast<std::uint16_t>(record.name.size()));
  put(literal(), extra);
}

void TorchArchiveLayout::begin(Record record) {
  record.place = position();
  constexpr std::uint64_t header = 30;
  constexpr std::uint16_t large_field = 20;
  constexpr std::uint16_t padding_header = 4;
  const std::uint16_t large = record.size >= least_zip64 ? large_field : 0;
  const std::uint64_t start = record.place + header + record.name.size() + large + padding_header;
  const auto padding = static_cast<std::uint16_t>(align_up(start, alignment) - start);
  put(literal(), std::uint32_t{0x04034b50});
  put_common(record, true, static_cast<std::uint16_t>(large + padding_header + padding));
  literal() += record.name;
  if (large != 0) {
    put(literal(), std::uint16_t{1});
    put(literal(), std::uint16_t{16});
    put(literal(), record.size);
    put(literal(), record.size);
  }
  literal() += "FB";  // as PyTorch calls its padding
  put(literal(), padding);
  literal().append(padding, 'Z');
  records_.push_back(std::move(record));
}

void TorchArchiveLayout::put_entry(const Record& record) {
  std::string large;
  if (record.size >= least_zip64) {
    put(large, record.size);
    put(large, record.size);
  }
  if (record.place >= least_zip64) put(large, record.place);
  put(literal(), std::uint32_t{0x02014b50});
  put(literal(), std::uint16_t{45});
  put_common(record, false, static_cast<std::uint16_t>(large.empty() ? 0 : large.size() + 4));
  literal().append(10, '\0');  // no comment, first disk, no attributes
  put(literal(), static_cast<std::uint32_t>(std::min(record.place, least_zip64)));
  literal() += record.name;
  if (large.empty()) return;
  put(literal(), std::uint16_t{1});
  put(literal(), static_cast<std::uint16_t>(large.size()));
  literal() += large;
}

void TorchArchiveLayout::put_end(std::uint64_t directory, std::uint64_t end) {
  const std::uint64_t entries = records_.size();
  const std::uint64_t size = end - directory;
  if (entries >= least_many || directory >= least_zip64 || size >= least_zip64) {
    put(literal(), std::uint32_t{0x06064b50});
    put(literal(), std::uint64_t{44});
    put(literal(), std::uint32_t{45U << 16U | 45U});
    put(literal(), std::uint64_t{0});  // the one disk
    put(literal(), entries);
    put(literal(), entries);
    put(literal(), size);
    put(literal(), directory);
    put(literal(), std::uint32_t{0x07064b50});
    put(literal(), std::uint32_t{0});
    put(literal(), end);
    put(literal(), std::uint32_t{1});
  }
  put(literal(), std::uint32_t{0x06054b50});
  put(literal(), std::uint32_t{0});
  for (int i = 0; i < 2; ++i) put(literal(), static_cast<std::uint16_t>(std::min(entries, least_many)));
  put(literal(), static_cast<std::uint32_t>(std::min(size, least_zip64)));
  put(literal(), static_cast<std::uint32_t>(std::min(directory, least_zip64)));
  put(literal(), std::uint16_t{0});
}

}  // namespace ckpt::source

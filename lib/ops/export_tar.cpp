// SPDX-License-Identifier: Apache-2.0
// Tensors as a POSIX tar (pax) of npy files, one a tensor, with nothing in it that depends on who wrote it.
#include "ops/export_layout.hpp"

#include "format/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ckpt::ops {
namespace {

constexpr std::size_t tar_record = 512;
constexpr std::size_t name_size = 100;
/// What eleven octal digits can say.
constexpr std::uint64_t max_octal = (1ULL << 33U) - 1;

std::string padding(std::uint64_t size) { return std::string((tar_record - size % tar_record) % tar_record, '\0'); }

std::string octal(std::uint64_t value) { return fmt::format("{:011o}", value) + '\0'; }

/// A name that stays below the directory in which the tar is unpacked.
std::string member_name(const std::string& name) {
  std::string plain = name + ".npy";
  if (format::is_safe_path(plain)) return plain;
  std::string escaped;
  for (const char c : plain) {
    if (c == '/' || c == '%' || c == '\0') {
      escaped += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string ustar_header(std::string_view name, char type, std::uint64_t size, std::int64_t mtime) {
  std::string header(tar_record, '\0');
  const auto put = [&](std::size_t at, std::string_view text) {
    std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(0, name.substr(0, name_size));
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, octal(std::min(size, max_octal)));
  put(136, octal(std::clamp<std::uint64_t>(mtime < 0 ? 0 : static_cast<std::uint64_t>(mtime), 0, max_octal)));
  put(148, "        ");
  header[156] = type;
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum) + '\0');
  return header;
}

/// "LENGTH KEY=VALUE\n", where the length counts itself.
std::string pax_record(std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest;
  while (std::to_string(length).size() + rest != length) length = std::to_string(length).size() + rest;
  return fmt::format("{} {}={}\n", length, key, value);
}

bool is_plain(std::string_view name) {
  return name.size() <= name_size && std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

/// The headers of one member.
std::string member_header(const std::string& name, std::uint64_t size, std::int64_t mtime) {
  std::string extended;
  if (!is_plain(name)) extended += pax_record("path", name);
  if (size > max_octal) extended += pax_record("size", std::to_string(size));
  if (extended.empty()) return ustar_header(name, '0', size, mtime);
  return ustar_header("PaxHeaders/member", 'x', extended.size(), mtime) + extended + padding(extended.size()) +
         ustar_header(is_plain(name) ? name : "member.npy", '0', size, mtime);
}

}  // namespace

ExportLayout lay_out_tar(const std::vector<ExportItem>& items, std::int64_t mtime) {
  ExportLayout layout;
  std::string before;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string header = npy_header(items[i]);
    const std::uint64_t size = header.size() + items[i].bytes;
    layout.push_back({.literal = before + member_header(member_name(items[i].name), size, mtime) + header, .item = i});
    before = padding(size);
  }
  layout.push_back({.literal = before + std::string(2 * tar_record, '\0'), .item = std::nullopt});
  return layout;
}

}  // namespace ckpt::ops

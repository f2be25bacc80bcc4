// SPDX-License-Identifier: Apache-2.0
// In the central directory always; in the local header, or in the descriptor behind the data of a writer that didn't
// know it before, and then perhaps in both.
#include "source/zip_checksums.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <array>

namespace ckpt::source {
namespace {

constexpr std::uint64_t central_size = 46;
constexpr std::uint64_t central_flags = 8;
constexpr std::uint64_t central_checksum = 16;
constexpr std::uint64_t local_checksum = 14;
constexpr std::uint16_t has_descriptor_behind = 8;
constexpr std::uint32_t descriptor_signature = 0x08074b50;

std::uint32_t number_at(const Input& input, std::uint64_t offset) {
  std::array<std::byte, 4> bytes{};
  input.read(offset, bytes);
  return load_le<std::uint32_t>(bytes.data());
}

}  // namespace

std::vector<ZipMember> find_zip_members(const Input& input, const ZipDirectory& directory) {
  std::vector<std::uint32_t> stored;
  for (std::uint32_t i = 0; i < directory.entries.size(); ++i) {
    if (directory.entries[i].stored && directory.entries[i].size > 0) stored.push_back(i);
  }
  std::vector<std::uint64_t> starts;
  if (const auto wrong = locate_zip_data(input, directory, stored, starts)) throw Error(Errc::unsupported, *wrong);
  std::vector<ZipMember> members;
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const ZipEntry& entry = directory.entries[stored[i]];
    // The name stands behind the fixed part of the entry.
    const std::byte* const central = reinterpret_cast<const std::byte*>(entry.name.data()) - central_size;
    const auto place = directory.directory + static_cast<std::uint64_t>(central - directory.bytes.data());
    const auto checksum = load_le<std::uint32_t>(central + central_checksum);
    ZipMember member{.begin = starts[i], .end = starts[i] + entry.size, .checksums = {place + central_checksum}};
    const std::uint64_t local = entry.header + local_checksum;
    if ((load_le<std::uint16_t>(central + central_flags) & has_descriptor_behind) == 0) {
      member.checksums.push_back(local);
    } else {
      if (number_at(input, local) != 0) member.checksums.push_back(local);
      std::uint64_t descriptor = member.end;
      if (lies_within(descriptor, 8, directory.directory) && number_at(input, descriptor) == descriptor_signature) {
        descriptor += 4;
      }
      if (!lies_within(descriptor, 4, directory.directory) || number_at(input, descriptor) != checksum) {
        throw Error(Errc::unsupported,
                    "the zip entry '" + std::string(entry.name) + "' has no descriptor behind its data");
      }
      member.checksums.push_back(descriptor);
    }
    members.push_back(std::move(member));
  }
  std::sort(members.begin(), members.end(), [](const ZipMember& a, const ZipMember& b) { return a.begin < b.begin; });
  return members;
}

}  // namespace ckpt::source

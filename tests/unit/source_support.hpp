// SPDX-License-Identifier: Apache-2.0
// Inputs in memory for the parsers' tests, and the checks that every parse must pass whatever the bytes are.
#pragma once

#include "core/bytes.hpp"
#include "core/tensor.hpp"
#include "source/input.hpp"
#include "source/parse.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace source_test {

class MemoryInput final : public ckpt::source::Input {
 public:
  explicit MemoryInput(std::string bytes) : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::uint64_t size() const override { return bytes_.size(); }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    if (!ckpt::lies_within(offset, into.size(), bytes_.size())) {
      throw ckpt::Error(ckpt::Errc::io, "a read outside the input");
    }
    std::copy_n(ckpt::as_bytes(bytes_).begin() + static_cast<std::ptrdiff_t>(offset), into.size(), into.begin());
  }

 private:
  std::string bytes_;
};

class MemorySiblings final : public ckpt::source::Siblings {
 public:
  std::map<std::string, std::string, std::less<>> files;
  [[nodiscard]] std::shared_ptr<const ckpt::source::Input> open(std::string_view path) const override {
    const auto found = files.find(path);
    if (found == files.end()) return nullptr;
    return std::make_unique<MemoryInput>(found->second);
  }
};

inline std::string fixture_path(std::string_view name) { return std::string(CKPT_FIXTURES) + "/" + std::string(name); }

inline std::string read_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw std::runtime_error("cannot open " + path);
  std::string bytes(std::filesystem::file_size(path), '\0');
  if (!stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    throw std::runtime_error("cannot read " + path);
  }
  return bytes;
}

inline std::string fixture(std::string_view name) { return read_file(fixture_path(name)); }

/// Every fixture by its path, the two files about them left out.
inline std::vector<std::string> all_fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(CKPT_FIXTURES)) {
    if (!entry.is_regular_file()) continue;
    const std::string name = std::filesystem::relative(entry.path(), CKPT_FIXTURES).string();
    if (name != "README.md" && name != "expected.json") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline ckpt::source::Parsed parse_bytes(std::string_view path, std::string bytes, const MemorySiblings& siblings = {}) {
  return ckpt::source::parse(path, MemoryInput(std::move(bytes)), siblings);
}

/// With the files beside it, as in a save of the whole directory.
inline ckpt::source::Parsed parse_fixture(std::string_view name) {
  MemorySiblings siblings;
  if (name.starts_with("dcp/")) siblings.files["dcp/.metadata"] = fixture("dcp/.metadata");
  return parse_bytes(name, fixture(name), siblings);
}

inline const ckpt::Tensor* find(const ckpt::source::Parsed& parsed, std::string_view name) {
  for (const ckpt::Tensor& tensor : parsed.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

inline std::vector<std::string> names_of(const ckpt::source::Parsed& parsed) {
  std::vector<std::string> names;
  for (const ckpt::Tensor& tensor : parsed.tensors) names.push_back(tensor.name);
  return names;
}

/// What parse.hpp promises of every result; an empty text if it holds.
inline std::string broken_promise(const ckpt::source::Parsed& parsed, std::uint64_t size) {
  if (!parsed.malformed.empty() || parsed.kind == ckpt::FileKind::opaque) {
    if (parsed.kind != ckpt::FileKind::opaque) return "malformed and not opaque";
    if (!parsed.extents.empty() || !parsed.tensors.empty()) return "opaque with tensors";
  }
  std::uint64_t end = 0;
  for (const ckpt::Extent& extent : parsed.extents) {
    if (extent.size == 0) return "an empty extent";
    if (extent.offset < end) return "extents overlap or aren't sorted";
    if (!ckpt::lies_within(extent.offset, extent.size, size)) return "an extent outside the file";
    end = extent.offset + extent.size;
  }
  std::set<std::string> names;
  for (const ckpt::Tensor& tensor : parsed.tensors) {
    if (!names.insert(tensor.name).second) return "two tensors named " + tensor.name;
    if (tensor.strides.size() != tensor.shape.size()) return "strides and shape differ of " + tensor.name;
    if (tensor.global_shape.size() != tensor.global_offsets.size()) return "offsets are missing of " + tensor.name;
    if (!tensor.global_shape.empty() && tensor.global_shape.size() != tensor.shape.size()) {
      return "the global shape has other dimensions than " + tensor.name;
    }
    if (!tensor.has_bytes) continue;
    const auto view_end = ckpt::view_end(tensor);
    if (!view_end || *view_end > size) return "a view outside the file: " + tensor.name;
  }
  return {};
}

/// The tensor's contiguous bytes. Whole bytes an element only.
inline std::string contiguous(const ckpt::Tensor& tensor, std::string_view file) {
  std::string out;
  const std::uint64_t width = ckpt::bits_of(tensor.dtype) / 8;
  const std::uint64_t count = ckpt::element_count(tensor).value();
  std::vector<std::int64_t> index(tensor.shape.size(), 0);
  for (std::uint64_t n = 0; n < count; ++n) {
    std::uint64_t at = 0;
    for (std::size_t d = 0; d < index.size(); ++d) at += static_cast<std::uint64_t>(index[d] * tensor.strides[d]);
    out += file.substr(tensor.offset + at * width, width);
    for (std::size_t d = index.size(); d-- > 0;) {
      if (++index[d] < tensor.shape[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

}  // namespace source_test

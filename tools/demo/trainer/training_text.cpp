// SPDX-License-Identifier: Apache-2.0
#include "training_text.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

namespace trainer {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_of(const std::string& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, 2014): neighbours in, noise out.
std::uint64_t scatter(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace

Text::Text(const std::string& path, std::int64_t length, std::int64_t seed) : length_(length), seed_(seed) {
  for (const fs::path& file : files_of(path)) {
    std::ifstream in(file, std::ios::binary);
    bytes_.append(std::istreambuf_iterator<char>(in), {});
    if (!in) throw std::runtime_error("cannot read '" + file.string() + "'");
  }
  if (bytes_.size() < static_cast<std::size_t>(length))
    throw std::runtime_error("'" + path + "' is shorter than a sample of " + std::to_string(length) + " bytes");
}

at::Tensor Text::samples(std::int64_t step, std::int64_t first, std::int64_t last) const {
  at::Tensor tokens = at::empty({last - first, length_}, at::TensorOptions().dtype(at::kLong));
  auto* token = tokens.data_ptr<std::int64_t>();
  for (std::int64_t sample = first; sample < last; ++sample) {
    std::uint64_t noise = 0;
    for (const std::int64_t part : {seed_, step, sample}) noise = scatter(noise ^ static_cast<std::uint64_t>(part));
    const std::size_t begin = noise % (bytes_.size() - static_cast<std::size_t>(length_) + 1);
    for (std::size_t i = 0; i < static_cast<std::size_t>(length_); ++i)
      *token++ = static_cast<unsigned char>(bytes_[begin + i]);
  }
  return tokens;
}

}  // namespace trainer

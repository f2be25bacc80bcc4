// SPDX-License-Identifier: Apache-2.0
// Stands in for libFuzzer's main: hands every file of the given directories, and every named file, to the target
// once, also cut short, so that a corpus is an ordinary test with any compiler. A crash is the failure.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

void replay(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string text(fs::file_size(path), '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  const std::vector<std::uint8_t> bytes(text.begin(), text.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size() / 2);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    if (!fs::is_directory(argv[i])) {
      files.emplace_back(argv[i]);
      continue;
    }
    for (const auto& entry : fs::recursive_directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::fprintf(stderr, "%s\n", file.c_str());
    replay(file);
  }
  // An empty corpus is a mistake in the call and no success.
  return files.empty() ? 2 : 0;
}

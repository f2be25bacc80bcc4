// SPDX-License-Identifier: Apache-2.0
// What a save is made of: files that are given as bytes, archives of records, and one of named tensors.
#pragma once

#include "capture/captured_file.hpp"
#include "core/bytes.hpp"
#include "core/tensor.hpp"
#include "source/source_tree.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::capi {

/// A named view on a range of memory.
struct NamedTensor {
  Tensor tensor;  ///< its offset is one in the range
  std::size_t range = 0;
};

/// Not thread-safe. All throw invalid_argument, and leave the object as it was then.
class CapturedFiles {
 public:
  /// Of the memory that will be frozen.
  std::size_t add_range(std::uint64_t size);

  void add_file(std::string_view path, ByteView bytes);
  void begin_archive(std::string_view path, std::string_view prefix);
  void add_record(std::string_view name, ByteView bytes);
  void add_record_of(std::string_view name, std::size_t range, std::uint64_t size);
  void add_tensor(NamedTensor tensor);

  /// The entries of a save. Ranges that nothing is made of are released. `seconds` dates the files.
  [[nodiscard]] std::vector<source::TreeEntry> entries(const std::shared_ptr<capture::FrozenMemory>& memory,
                                                       std::int64_t seconds) const;

 private:
  struct Record {
    std::string name;
    std::optional<capture::FileContent> content;
    Bytes bytes;
  };
  struct File {
    std::string path;
    std::optional<std::string> prefix;  ///< nothing: no archive, and the one record is its content
    std::vector<Record> records;
  };

  void require_new_path(std::string_view path) const;
  [[nodiscard]] File& open_archive();
  [[nodiscard]] std::shared_ptr<const capture::CapturedFile> capture(
      const File& file, const std::shared_ptr<capture::FrozenMemory>& memory) const;
  [[nodiscard]] std::shared_ptr<const capture::CapturedFile> capture_tensors(
      const std::shared_ptr<capture::FrozenMemory>& memory) const;

  std::vector<std::uint64_t> sizes_;
  std::vector<bool> used_;  ///< of each range: by a record or a tensor
  std::vector<File> files_;
  std::vector<NamedTensor> tensors_;
  std::set<std::string> names_;  ///< of tensors
};

}  // namespace ckpt::capi

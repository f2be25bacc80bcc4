// SPDX-License-Identifier: Apache-2.0
// A state's bytes, as they come, put into the files that its entries name.
#pragma once

#include "core/bytes.hpp"
#include "doors/tree_builder.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ckpt::doors {

/// Borrows the entries, whose sizes add up to the bytes that come. Errors are TreeBuilder's.
class TreeWriter {
 public:
  /// `root` mustn't exist.
  TreeWriter(std::string root, const std::vector<format::FileEntry>& entries);
  void append(ByteView bytes);
  void finish();

 private:
  /// Makes entries up to the next one that still takes bytes.
  void advance();

  const std::vector<format::FileEntry>& entries_;
  TreeBuilder builder_;
  std::size_t next_ = 0;
  os::Fd file_;             ///< of the entry before `next_`, while bytes are missing from it
  std::uint64_t left_ = 0;  ///< bytes missing from it
};

}  // namespace ckpt::doors

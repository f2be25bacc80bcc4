// SPDX-License-Identifier: Apache-2.0
// Walks the operands of a save and says what will be stored under which name.
#pragma once

#include "format/catalog.hpp"
#include "source/input.hpp"

#include <sys/stat.h>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::source {

struct TreeEntry {
  format::FileEntry file;  ///< path, type, mode, size, mtime, owner, target; the ranges are still empty
  std::string origin;      ///< where the bytes are now
  std::string shown;       ///< the same as messages say it: in quotes, or "standard input"
  struct stat status {};   ///< when it was found: what is read later must still be this
  std::shared_ptr<const HeldInput> held = {};  ///< the bytes are in memory, and there's no origin
};

struct TreeRequest {
  std::vector<std::string> operands;     ///< without "-"
  std::optional<std::string> directory;  ///< tar's -C
  bool owner = false;
};

/// In the order of the walk, for arrange(). Sockets, FIFOs and devices are invalid_argument; also not_found, io.
/// Symlinks inside an operand's tree that point inside it are kept; others are followed.
[[nodiscard]] std::vector<TreeEntry> collect_tree(const TreeRequest& request);

/// One entry from a status.
[[nodiscard]] TreeEntry make_entry(std::string path, std::string origin, const struct stat& status, bool owner);

/// Sorts by path and turns a second name of one file into a hard link to the first. A name twice (except a directory's)
/// is Errc::exists; one that would leave the tree invalid_argument.
[[nodiscard]] std::vector<TreeEntry> arrange(std::vector<TreeEntry> entries);

/// True if both are the same file with the same content, as far as the system tells.
[[nodiscard]] bool is_unchanged(const struct stat& before, const struct stat& now);

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// How the inputs of a save get into a spool without a copy: by renaming them, one by one, and back if need be.
#pragma once

#include "source/source_tree.hpp"

#include <ckpt/save.hpp>

#include <optional>
#include <string>
#include <vector>

namespace ckpt::doors {

struct Move {
  std::string from;  ///< absolute
  std::string to;    ///< below the entry's tree; empty: the tree itself
};

/// What the entry's tree is made by.
struct Intent {
  bool by_moving = false;  ///< else by copying
  std::vector<Move> moves;
};

[[nodiscard]] std::string encode_intent(const Intent& intent);
/// Throws Damaged.
[[nodiscard]] Intent decode_intent(std::string_view text, const std::string& name);

/// Nothing if renaming would give another tree than the one that was found: several names of one file, links that are
/// followed, two operands that meet in one directory, standard input.
[[nodiscard]] std::optional<std::vector<Move>> plan_moves(const SaveOptions& save,
                                                          const std::vector<source::TreeEntry>& entries);

/// Renames all into `tree`, or none. False if the file system can't: nothing has moved then. Throws exists if something
/// couldn't be moved back, naming it.
[[nodiscard]] bool move_in(const std::vector<Move>& moves, const std::string& tree);

enum class MovedBack {
  all,    ///< what had moved is where it was
  stuck,  ///< something else is at one of the places now; the rest is back
};
/// Also after a crash in mid-way.
[[nodiscard]] MovedBack move_back(const std::vector<Move>& moves, const std::string& tree);

/// True if every input is in the tree.
[[nodiscard]] bool all_moved(const std::vector<Move>& moves, const std::string& tree);

}  // namespace ckpt::doors

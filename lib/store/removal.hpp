// SPDX-License-Identifier: Apache-2.0
// Removing in three moves: away from its place in one rename, a second look whether something has begun to need it, and
// only then its bytes. A crash between two of them leaves an entry of .trash/ that the next one settles in the same
// way.
//
//   .trash/0000001000              was a committed checkpoint
//   .trash/0000000990-54bc2e1d     was a retired one
//   .trash/set-0000001010.4.2      was a set
#pragma once

#include "store/store.hpp"

#include <string>
#include <vector>

namespace ckpt::store {

/// Moves a committed or retired checkpoint, or a set in .retired/, to .trash/. False if it isn't there any more, or its
/// name is taken there by what couldn't be deleted. Durable once settle_trash() has come back. The caller holds the
/// lock.
bool discard(const Store& store, const std::string& directory);

struct Settled {
  std::vector<std::string> put_back;  ///< names in .trash/: pinned meanwhile, or needed as a base
  std::vector<std::string> left;      ///< paths that couldn't be deleted, with the reason
};
/// Puts back what is needed and deletes the rest, with its records of verification. The caller holds the lock.
Settled settle_trash(const Store& store);

/// For those who pass by: settles what a dead one left, if no one holds the lock.
void settle_dead_trash(const Store& store);

/// Discards sets that can't become a checkpoint any more: those of attempts that are over, and those that wait for a
/// shard and haven't changed for a week by the file system's clock. Returns how many. The caller holds the lock.
std::size_t discard_dead_sets(const Store& store);

}  // namespace ckpt::store

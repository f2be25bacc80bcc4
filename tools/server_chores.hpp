// SPDX-License-Identifier: Apache-2.0
// What ckpt-serve does in idle time: prune, scrub, compress.
#pragma once

#include <ckpt/prune.hpp>
#include <ckpt/serve.hpp>

#include <cstdint>
#include <string>

namespace ckpt::cli {

/// ckpt-prune's options in one text. Throws Errc::invalid_argument; a policy that says nothing is one too.
[[nodiscard]] PruneOptions parse_prune_policy(const std::string& text);

/// Prunes whenever the store holds other checkpoints than the last time.
[[nodiscard]] Chore prune_chore(PruneOptions options);
/// Verifies every stored byte, again and again, at a rate.
[[nodiscard]] Chore scrub_chore(const std::string& store, std::uint64_t bytes_per_second, unsigned jobs);
/// Stores the newest checkpoint in full and older ones against newer ones, whenever there's a new one.
[[nodiscard]] Chore compress_chore(const std::string& store, unsigned jobs);

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
// What was asked of a save that someone else makes durable: it travels with the state, as a sealed JSON document.
#pragma once

#include "source/source_tree.hpp"

#include <ckpt/save.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::doors {

struct Ticket {
  /// As the producer gave them. `store`, `sources`, `directory` and the two of standard input mean nothing: the store
  /// is the server's, the source is what was handed over.
  SaveOptions save;
  std::int64_t created_ns = 0;  ///< when it was handed over, since the epoch by the producer's clock
  std::string host;             ///< the producer's
  std::uint64_t files = 0;
  std::uint64_t raw_bytes = 0;
  /// Directories that are there only since something lies in them: they aren't part of the checkpoint.
  std::vector<std::string> implied_directories;
};

/// Since the epoch.
[[nodiscard]] std::int64_t now_ns();

/// `entries` are arranged.
[[nodiscard]] Ticket make_ticket(const SaveOptions& save, const std::vector<source::TreeEntry>& entries);

[[nodiscard]] std::string encode_ticket(const Ticket& ticket);
/// Throws Damaged; unsupported if a newer version wrote it. `name` is for messages.
[[nodiscard]] Ticket decode_ticket(std::string_view text, const std::string& name);

/// No ticket is larger than this, in bytes.
inline constexpr std::uint64_t max_ticket_size = 1U << 20U;

}  // namespace ckpt::doors

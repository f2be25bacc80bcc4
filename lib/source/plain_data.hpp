// SPDX-License-Identifier: Apache-2.0
// What a file of a known kind holds besides the elements of its tensors: pickles, and records that no parser looks
// into. Only their places: who wants them reads them.
#pragma once

#include "core/tensor.hpp"
#include "source/input.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::source {

/// A range of the file.
struct PlainSpot {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

struct PlainSpots {
  /// By the name of the object at the top, empty for the file's own.
  std::vector<PlainSpot> pickles;
  /// By their names in the archive, without its own name. Those that say how the archive is written are left out.
  std::vector<PlainSpot> records;
};

/// `extents` are what parse() found. Nothing for a kind that holds no such thing, and for a file in which they can't be
/// found; then its bytes are all that can be said of it. Never throws because of what the bytes say.
[[nodiscard]] std::optional<PlainSpots> find_plain_data(std::string_view path, FileKind kind, const Input& input,
                                                        const Siblings& siblings, std::span<const Extent> extents);

}  // namespace ckpt::source

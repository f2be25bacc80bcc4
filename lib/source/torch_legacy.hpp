// SPDX-License-Identifier: Apache-2.0
// What torch.save wrote before the zip form: five pickles in a row, then the storages.
#pragma once

#include "core/bytes.hpp"
#include "source/input.hpp"
#include "source/parse.hpp"
#include "source/verdict.hpp"

#include <cstdint>
#include <optional>
#include <utility>

namespace ckpt::source {

enum class LegacyStart {
  no,
  perhaps,  ///< too short to tell, but right so far
  yes,
};
/// `head` is the file's first bytes, at least 64 if it has so many.
[[nodiscard]] LegacyStart looks_like_torch_legacy(ByteView head);

/// Adds the tensors to `to`. If the verdict isn't fine, `to` may hold half a result.
[[nodiscard]] Verdict parse_torch_legacy(const Input& input, Parsed& to);

/// Where in the file the pickle of the saved object begins and ends; nothing if it isn't readable.
[[nodiscard]] std::optional<std::pair<std::uint64_t, std::uint64_t>> find_legacy_object(const Input& input);

}  // namespace ckpt::source

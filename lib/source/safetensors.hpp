// SPDX-License-Identifier: Apache-2.0
// safetensors: the length of a JSON header, the header, and one buffer that the tensors tile without gaps.
#pragma once

#include "core/bytes.hpp"
#include "source/input.hpp"
#include "source/parse.hpp"
#include "source/verdict.hpp"

namespace ckpt::source {

/// The format's own limit.
inline constexpr std::uint64_t max_safetensors_header = 100'000'000;

/// True for a head that such a file could begin with; one byte or more of it are enough to say no.
[[nodiscard]] bool looks_like_safetensors(ByteView head);

/// Adds the tensors to `to`. If the verdict isn't fine, `to` may hold half a result.
[[nodiscard]] Verdict parse_safetensors(const Input& input, Parsed& to);

}  // namespace ckpt::source

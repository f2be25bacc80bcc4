// SPDX-License-Identifier: Apache-2.0
// numpy's array files: npy, and npz, a zip of npy members.
#pragma once

#include "core/bytes.hpp"
#include "source/input.hpp"
#include "source/parse.hpp"
#include "source/unique_names.hpp"
#include "source/verdict.hpp"

namespace ckpt::source {

[[nodiscard]] bool looks_like_npy(ByteView head);

/// Adds the array in the bytes [begin, end) of the file. Arrays of objects and records are left opaque, with a note.
[[nodiscard]] Verdict parse_npy(const Input& input, std::uint64_t begin, std::uint64_t end, std::string name,
                                Parsed& to);

/// Adds the stored members; foreign if there's no member that is an array.
[[nodiscard]] Verdict parse_npz(const Input& input, const ZipDirectory& directory, UniqueNames& names, Parsed& to);

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// What is said of whole files: links, files that one side alone has, files that are compared by their bytes.
#pragma once

#include "ops/diff_pairs.hpp"
#include "ops/diff_side.hpp"
#include "ops/diff_tensors.hpp"

#include <ckpt/diff.hpp>

#include <optional>
#include <vector>

namespace ckpt::ops {

[[nodiscard]] DiffPlace place_of(const SideFile& file);

/// `tensors` and `resharding` say which files' tensors have partners.
[[nodiscard]] std::vector<FileDiff> compare_presence(const std::vector<SideFile>& a, const std::vector<SideFile>& b,
                                                     const std::vector<FilePair>& files,
                                                     const std::vector<TensorPair>& tensors,
                                                     const Resharding& resharding);

/// The bytes that both files have, as a tensor without a type.
[[nodiscard]] Tensor common_bytes(const SideFile& a, const SideFile& b);

/// What came out of comparing them; nothing if the files are the same.
[[nodiscard]] std::optional<FileDiff> file_diff(const DiffSide& a, const DiffSide& b, const Comparison& compared,
                                                const DiffNumbers& numbers);

}  // namespace ckpt::ops

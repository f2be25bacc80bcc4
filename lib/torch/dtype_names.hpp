// SPDX-License-Identifier: Apache-2.0
// PyTorch's names for element types. LibTorch knows more of them with every version, so they're found by what it calls
// them and not by constants.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

namespace ckpt::torch {

/// "float32" and the like; empty for one that has no plain tensors.
[[nodiscard]] std::string dtype_name(c10::ScalarType type);
/// Nothing for one that this LibTorch hasn't.
[[nodiscard]] std::optional<c10::ScalarType> dtype_named(const std::string& name);

}  // namespace ckpt::torch

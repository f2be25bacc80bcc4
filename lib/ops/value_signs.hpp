// SPDX-License-Identifier: Apache-2.0
// Resolves a tensor's conjugate and negative bits: the values that its user sees are not those that are stored.
#pragma once

#include "core/bytes.hpp"
#include "core/tensor.hpp"

namespace ckpt::ops {

/// `elements`, or `scratch` with the resolved values where the tensor has such a bit. Whole elements only. A conjugate
/// bit says nothing of real numbers; a negative bit nothing of unsigned ones and of types without arithmetic.
[[nodiscard]] ByteView resolve_signs(const Tensor& tensor, ByteView elements, Bytes& scratch);

}  // namespace ckpt::ops

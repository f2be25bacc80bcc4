// SPDX-License-Identifier: Apache-2.0
// PyTorch's names for element types, storages and the functions that rebuild tensors.
#pragma once

#include "core/tensor.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace ckpt::source {

/// "FloatStorage" and the like. `opaque` for one whose element type isn't known here.
[[nodiscard]] DType dtype_of_storage(std::string_view class_name);
/// The other way round; empty for a type that has no class of its own, or none that holds plain tensors.
[[nodiscard]] std::string_view storage_class_of(DType dtype);
/// "UntypedStorage" and its older spelling: counted in bytes.
[[nodiscard]] bool is_untyped_storage(std::string_view class_name);
/// "torch.sparse_coo" and the like; strided for what isn't known.
[[nodiscard]] Layout layout_from_torch(std::string_view name);
/// What remains of a type when its byte order isn't this machine's: the width.
[[nodiscard]] DType width_only(DType dtype);
/// The type without a name that has this width, if there's one.
[[nodiscard]] std::optional<DType> dtype_of_width(std::uint64_t bytes);

/// What a call in a pickle makes.
enum class Rebuild : std::uint8_t {
  unknown,
  tensor,            ///< (storage, offset, size, stride, ...)
  tensor_v3,         ///< the same with the element type as an argument
  parameter,         ///< (tensor, ...)
  parameter_state,   ///< (tensor, ..., ..., state)
  sparse,            ///< (layout, parts)
  quantized,         ///< (storage, offset, size, stride, quantizer, ...)
  nested,            ///< (buffer, sizes, strides, offsets)
  jagged,            ///< ({"values": ..., "offsets": ...})
  meta,              ///< (dtype, size, stride, ...)
  from_numpy,        ///< (array, dtype, ...)
  wrapper_subclass,  ///< (class, dtype, size, ...)
  from_type,         ///< (function, class, arguments, state)
  content,           ///< the first argument as it is
  pairs,             ///< a dict, perhaps from a list of pairs
  reconstructor,     ///< (class, base class, content of the base)
  size,              ///< torch.Size
  layout,            ///< (name)
};
[[nodiscard]] Rebuild rebuild_of(std::string_view module, std::string_view name);

}  // namespace ckpt::source

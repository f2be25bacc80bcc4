// SPDX-License-Identifier: Apache-2.0
// The pickle of a flat dict of tensors as torch.save writes it: the data.pkl of an archive whose records data/KEY are
// the storages. Protocol 2, and nothing in it that torch.load(weights_only=True) would refuse.
#pragma once

#include "core/tensor.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace ckpt::source {

/// A strided view on a storage. Several may name the same one; they all say the same size of it.
struct PickledTensor {
  std::string_view name;         ///< UTF-8; no other has it
  DType dtype = DType::opaque;   ///< one that can_be_pickled()
  std::string_view storage_key;  ///< its record is data/KEY
  std::uint64_t storage_bytes = 0;
  std::uint64_t offset = 0;  ///< of the first element in the storage, in elements of the tensor
  std::span<const std::int64_t> shape;
  std::span<const std::int64_t> strides;  ///< in elements, as many as shape
};

/// True for the types that PyTorch knows as a tensor's without more being said; not so quantised ones.
[[nodiscard]] bool can_be_pickled(DType dtype);

/// The bytes of data.pkl: the same for the same tensors, in their order. A storage is typed where all views on it have
/// one type, PyTorch has a storage class for that and the size is a multiple of its width; else it's untyped and the
/// tensors say their own (PyTorch 2.1 and later reads that). Pure. Throws Errc::unsupported, naming the tensor, if its
/// type can't be pickled or its name isn't UTF-8.
[[nodiscard]] std::string pickle_of(std::span<const PickledTensor> tensors);

}  // namespace ckpt::source

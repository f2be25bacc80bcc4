// SPDX-License-Identifier: Apache-2.0
// From a byte range of a container to what a user knows: the file, the tensor, the element.
#pragma once

#include "format/container_reader.hpp"
#include "format/damaged.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace ckpt::ops {

/// The first saved file and tensor whose bytes lie in a range of the container; empty where there is none.
struct Hit {
  std::string file;
  std::string tensor;
  std::uint64_t more = 0;  ///< files and tensors that are hit besides
};
[[nodiscard]] Hit describe_hit(const format::ContainerReader& container, std::uint64_t begin, std::uint64_t end);

/// The same damage with the names of the file and tensor that it hits in front.
[[nodiscard]] format::Damaged name_hit(const format::ContainerReader& container, const format::Damaged& damage);

/// One bit of a container in words: "tensor 'w' of 'x.pt', element 17, bit 3"; for bytes that are in no tensor the file
/// and its byte, for those in no file the container's.
[[nodiscard]] std::string describe_bit(const format::ContainerReader& container, std::uint64_t byte, unsigned bit);

/// The first file of the catalog that has bytes in block `block`.
[[nodiscard]] const format::FileEntry& file_of_block(const format::Catalog& catalog, std::uint64_t block);

}  // namespace ckpt::ops

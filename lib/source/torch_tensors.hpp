// SPDX-License-Identifier: Apache-2.0
// Finds the tensors in what a pickle builds. The walk is iterative and looks into each shared container once,
// where it's first met, while a shared tensor is listed at each place; so it ends on any graph.
#pragma once

#include "core/tensor.hpp"
#include "source/huge_table.hpp"
#include "source/parse.hpp"
#include "source/pickle.hpp"
#include "source/unique_names.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::source {

/// A storage that a pickle names: where its bytes lie is the file's business.
struct Storage {
  std::string_view key;          ///< points into the pickle's bytes
  DType dtype = DType::opaque;   ///< of the first tensor on it; opaque if that isn't known
  DType stated = DType::opaque;  ///< by its own class, which also says in which units `elements` counts
  std::uint64_t elements = 0;
};

/// What find_tensors() leaves to be done.
struct TensorTree {
  static constexpr std::uint32_t no_storage = 0xffffffffU;

  std::size_t first = 0;                ///< the first of its tensors in the file's list
  HugeTable<std::uint32_t> storage_of;  ///< for each of them, which storage
  HugeTable<Storage> storages;
  std::uint64_t not_understood = 0;  ///< calls that should make a tensor but have odd arguments
  /// Not empty: a limit is exceeded, and the tables are not to be used.
  std::string refused;
};

struct TreeOptions {
  bool big_endian = false;
  std::string_view prefix;       ///< the name of the top object; empty: its members' names stand alone
  UniqueNames* names = nullptr;  ///< of the file; required
};

/// Appends to `tensors`; their offsets still count elements from the start of their storage.
[[nodiscard]] TensorTree find_tensors(const Pickle& pickle, const TreeOptions& options, std::vector<Tensor>& tensors);

/// Every storage that the pickle names, once for each time it's named, also where no tensor is listed on it.
[[nodiscard]] HugeTable<Storage> storages_in(const Pickle& pickle);

/// Where a storage's bytes lie in the file.
struct Place {
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

/// Moves the tree's tensors in `to` to their places and adds the storages' extents. Tensors whose storage has no place
/// are left out. Gives what is wrong if a view or a storage doesn't fit its place, and then `to` is not to be used.
[[nodiscard]] std::optional<std::string> place_tensors(TensorTree& tree, std::span<const std::optional<Place>> places,
                                                       Parsed& to);

/// Sorts extents and drops those that overlap an earlier one.
void settle_extents(std::vector<Extent>& extents);

}  // namespace ckpt::source

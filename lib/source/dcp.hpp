// SPDX-License-Identifier: Apache-2.0
// torch.distributed.checkpoint: a .metadata pickle that says which item lies where, and .distcp files that hold the
// items, each a whole torch zip.
#pragma once

#include "core/bytes.hpp"
#include "source/input.hpp"
#include "source/parse.hpp"
#include "source/verdict.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::source {

/// True if `input` is a .metadata pickle that can be read. It holds no tensors itself.
[[nodiscard]] bool is_dcp_metadata(const Input& input);

/// One torch zip in a .distcp file.
struct DcpItem {
  std::string name;  ///< empty without .metadata
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool tensor = false;  ///< a tensor and nothing else, as the .metadata says
};
/// In the order of the file; those that aren't torch zips are left out.
[[nodiscard]] std::vector<DcpItem> find_dcp_items(std::string_view path, const Input& input, const Siblings& siblings);

/// Adds the tensors of a .distcp file. Names, global shapes and offsets come from the .metadata beside it; without one,
/// or where it doesn't speak of this file, the zips are found from the end of the file backwards. If the verdict isn't
/// fine, `to` may hold half a result.
[[nodiscard]] Verdict parse_distcp(std::string_view path, const Input& input, const Siblings& siblings, Parsed& to);

}  // namespace ckpt::source

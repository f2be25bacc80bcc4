// SPDX-License-Identifier: Apache-2.0
// Finds the tensors in a file without running anything: the one door to all file kinds.
#pragma once

#include "core/tensor.hpp"
#include "source/input.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace ckpt::source {

struct Parsed {
  FileKind kind = FileKind::opaque;
  /// Typed ranges, sorted by offset, not overlapping, none empty, all inside the file. Other bytes are opaque.
  std::vector<Extent> extents;
  /// In the order of the file's own structure. Names are unique in the file. Every view lies inside the file.
  std::vector<Tensor> tensors;
  /// Something worth knowing that isn't an error, one line: "deflated entries are kept as they are", a bound that
  /// was exceeded. Empty: nothing.
  std::string note;
  /// Not empty: the file begins like its kind, or has a name of its kind, and is damaged or cut short; says how and
  /// where. Kind is then opaque and there are no extents and tensors.
  std::string malformed;
};

/// Never throws because of what the bytes say; passes on Input's own errors. `path` is the file's name in the
/// checkpoint: its extension matters for what counts as malformed, its directory for DCP.
[[nodiscard]] Parsed parse(std::string_view path, const Input& input, const Siblings& siblings);

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// The zip form of torch.save and of TorchScript: a pickle, and one stored record for each storage.
#pragma once

#include "source/input.hpp"
#include "source/parse.hpp"
#include "source/unique_names.hpp"
#include "source/verdict.hpp"

#include <cstdint>
#include <string_view>

namespace ckpt::source {

/// Adds the tensors of the archive whose directory was read to `to`; the extents are unsorted then. Members of the
/// archive's top object are named below `prefix`. Foreign if it isn't torch's. If the verdict isn't fine, `to` may
/// hold half a result.
[[nodiscard]] Verdict parse_torch_archive(const Input& input, const ZipDirectory& directory, std::string_view prefix,
                                          UniqueNames& names, Parsed& to);

}  // namespace ckpt::source

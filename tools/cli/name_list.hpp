// SPDX-License-Identifier: Apache-2.0
// --files-from: names from a file, one a line, or ended by NUL.
#pragma once

#include <string>
#include <vector>

namespace ckpt::cli {

/// `path` may be "-". Empty names are left out. Throws Errc::not_found, io, or invalid_argument beyond 1 GiB.
[[nodiscard]] std::vector<std::string> read_name_list(const std::string& path, char end);

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
#include "doors/consumed_input.hpp"

#include <unistd.h>
#include <cerrno>

namespace ckpt::doors {

void remove_inputs(const std::vector<source::TreeEntry>& entries, Monitor& monitor) {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->origin.starts_with("/proc/self/fd/")) continue;
    if (entry->file.type == format::EntryType::directory) {
      ::rmdir(entry->origin.c_str());  // what was made in it since stays
    } else if (::unlink(entry->origin.c_str()) != 0 && errno != ENOENT) {
      monitor.warning("staged, but cannot remove " + entry->shown);
    }
  }
}

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
#include "store/leftovers.hpp"

#include "os/fd.hpp"
#include "os/small_file.hpp"
#include "os/temporary_file.hpp"
#include "store/pins.hpp"
#include "store/removal.hpp"
#include "store/skipping.hpp"
#include "store/swap.hpp"

#include <unistd.h>
#include <algorithm>

namespace ckpt::store {

void clean_leftovers(const Store& store) {
  os::remove_dead_temporaries(store.path());
  os::remove_dead_temporaries(store.scratch());
  os::remove_dead_temporaries(store.records());
  remove_dead_pins(store);
  clean_dead_swaps(store);
  settle_dead_trash(store);
  remove_old_decisions(store);
  for (const std::string& name : os::list_directory(store.pending()).value_or(std::vector<std::string>{})) {
    // Fails where a shard is in it, which is as it should be.
    if (parse_set_name(name)) ::rmdir((store.pending() + "/" + name).c_str());
    const std::string set = name.substr(0, name.size() - std::min(name.size(), replace_suffix.size()));
    const bool marks_nothing = name.ends_with(replace_suffix) && !os::exists(store.pending() + "/" + set);
    if (marks_nothing) ::unlink((store.pending() + "/" + name).c_str());
  }
}

}  // namespace ckpt::store

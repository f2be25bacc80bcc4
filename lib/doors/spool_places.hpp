// SPDX-License-Identifier: Apache-2.0
// Where a store's saves may be waiting: its own spools, one a host, and those elsewhere that it has pointers to.
#pragma once

#include "doors/spool.hpp"
#include "store/store.hpp"

#include <ckpt/monitor.hpp>

#include <string>
#include <vector>

namespace ckpt::doors {

struct SpoolPlace {
  std::string path;
  std::string host;
  bool here = true;  ///< false: on another host's own disk
};
[[nodiscard]] std::vector<SpoolPlace> find_spool_places(const std::string& store);

/// Those that can be looked into from here, and `more`, which must be spools: else Errc::not_found.
[[nodiscard]] std::vector<Spool> reachable_spools(const std::string& store, const std::vector<std::string>& more);

/// True if a worker or a server has the spool.
[[nodiscard]] bool is_drained_by_someone(const Spool& spool);

/// Removes what attempts that are over left in spools that can be reached. Returns how many entries.
std::size_t remove_superseded(const store::Store& store, Monitor& monitor);

}  // namespace ckpt::doors

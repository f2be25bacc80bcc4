// SPDX-License-Identifier: Apache-2.0
#include "doors/spool_places.hpp"

#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "store/attempts.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <array>
#include <climits>
#include <set>
#include <utility>

namespace ckpt::doors {
namespace {

std::optional<std::string> read_pointer(const std::string& path) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  if (size <= 0 || target[0] != '/') return std::nullopt;
  return std::string(target.data(), static_cast<std::size_t>(size));
}

}  // namespace

std::vector<SpoolPlace> find_spool_places(const std::string& store) {
  std::vector<SpoolPlace> places;
  const std::string root = store + "/.spool";
  const std::string this_host = os::host_name();
  for (const std::string& host : os::list_directory(root).value_or(std::vector<std::string>{})) {
    const std::string own = root + "/" + host;
    if (Spool::find(own)) places.push_back({.path = own, .host = host});
    for (const std::string& name : os::list_directory(own).value_or(std::vector<std::string>{})) {
      if (!name.starts_with(pointer_prefix)) continue;
      if (const auto target = read_pointer(own + "/" + name))
        places.push_back({.path = *target, .host = host, .here = host == this_host});
    }
  }
  return places;
}

std::vector<Spool> reachable_spools(const std::string& store, const std::vector<std::string>& more) {
  std::vector<Spool> spools;
  std::set<std::pair<dev_t, ino_t>> known;  // one spool may have several paths
  const auto add = [&](const std::string& path) {
    auto spool = Spool::find(path);
    const auto status = spool ? os::stat_path(path) : std::nullopt;
    if (!status) return false;
    if (known.emplace(status->st_dev, status->st_ino).second) spools.push_back(std::move(*spool));
    return true;
  };
  for (const SpoolPlace& place : find_spool_places(store)) {
    if (place.here) (void)add(place.path);  // its disk may be gone
  }
  for (const std::string& path : more) {
    if (!add(path)) throw Error(Errc::not_found, "'" + path + "' is not a spool");
  }
  return spools;
}

std::size_t remove_superseded(const store::Store& store, Monitor& monitor) {
  const std::uint64_t attempt = store::highest_attempt(store);
  std::size_t count = 0;
  for (const Spool& spool : reachable_spools(store.path(), {})) {
    for (const Stage stage : {Stage::retired, Stage::failed}) {
      for (const Entry& entry : spool.entries(stage)) {
        if (entry.name.set.attempt >= attempt) continue;
        try {
          spool.remove(entry);
          ++count;
        } catch (const Error& error) {
          monitor.warning(error.what());
        }
      }
    }
  }
  return count;
}

bool is_drained_by_someone(const Spool& spool) {
  const auto lock = os::open_if_exists(spool.lock_path(), O_RDWR);
  return lock && !os::try_lock(*lock, spool.lock_path());
}

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_place.hpp"

#include "os/file_lock.hpp"
#include "os/small_file.hpp"

#include <ckpt/bench.hpp>
#include <ckpt/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <utility>

namespace ckpt::measure {
namespace {

constexpr const char* marker = ".ckpt-bench";
constexpr std::string_view marker_text = "made by ckpt-bench, which removes what it knows of here\n";
constexpr std::array<const char*, 6> part_names = {"synchronous", "detached", "in-process",
                                                   "state",       "spool",    "restored"};

}  // namespace

BenchPlace::BenchPlace(std::string path, bool keep, Monitor& monitor)
    : path_(std::move(path)), keep_(keep), monitor_(monitor) {
  const std::string mark = path_ + "/" + marker;
  const bool is_new = !os::exists(path_);
  if (is_new) {
    (void)os::make_directory(path_);
    os::write_small_file(mark, marker_text);
  }
  auto lock = os::open_if_exists(mark, O_RDONLY | O_NOFOLLOW);
  if (!lock || os::read_small_file(mark, 4096).value_or("") != marker_text) {
    throw Error(Errc::exists, fmt::format("'{}' is there, and no bench made it", path_))
        .with_hint("name a directory that isn't there yet");
  }
  if (!os::try_lock(*lock, mark)) throw Error(Errc::busy, fmt::format("another bench runs in '{}'", path_));
  lock_ = std::move(*lock);
  clear();
}

BenchPlace::~BenchPlace() {
  if (keep_) return;
  try {
    clear();
    for (const std::string& name : os::list_directory(path_).value_or(std::vector<std::string>{})) {
      if (name == marker) continue;
      monitor_.warning(fmt::format("'{}' stays: '{}' in it is no bench's", path_, name));
      return;
    }
    if (::unlink((path_ + "/" + marker).c_str()) != 0 || ::rmdir(path_.c_str()) != 0)
      monitor_.warning(fmt::format("cannot remove '{}'", path_));
  } catch (const std::exception& error) {
    monitor_.warning(error.what());
  }
}

std::string BenchPlace::sub(const std::string& name) const { return path_ + "/" + name; }

void BenchPlace::clear() {
  for (const char* part : part_names) os::remove_directory(sub(part));
}

}  // namespace ckpt::measure

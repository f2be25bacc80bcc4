// SPDX-License-Identifier: Apache-2.0
#include "doors/spool_recovery.hpp"

#include "doors/spool_moves.hpp"
#include "os/fd.hpp"
#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "os/temporary_file.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <filesystem>

namespace ckpt::doors {
namespace {

std::optional<Intent> read_intent(const Entry& entry) {
  const auto text = os::read_small_file(entry.intent(), max_ticket_size);
  if (!text) return std::nullopt;
  try {
    return decode_intent(*text, entry.intent());
  } catch (const Error& error) {
    if (error.code() != Errc::damaged && error.code() != Errc::unsupported) throw;
    return std::nullopt;
  }
}

void keep(const Spool& spool, const Entry& entry, const std::string& why, Monitor& monitor) {
  write_trouble(entry.path, {.failures = 2, .reason = why});
  const auto kept = spool.move(entry, Stage::failed);
  if (kept) monitor.warning("'" + kept->path + "': " + why);
}

void finish_or_give_back(const Spool& spool, const Entry& entry, Monitor& monitor) {
  const auto intent = read_intent(entry);
  if (!intent) {
    // Without it no one knows what in here was moved.
    keep(spool, entry, "its producer died, and where its input came from can't be read", monitor);
    return;
  }
  if (!intent->by_moving) {
    spool.remove(entry);  // a copy; the input is where it was
    return;
  }
  if (all_moved(intent->moves, entry.tree())) {
    write_staging(entry.path, {.how = "rename", .seconds = 0});
    if (spool.move(entry, Stage::staged))
      monitor.note("finished what a dead producer handed over: '" + entry.path + "'");
    return;
  }
  if (move_back(intent->moves, entry.tree()) == MovedBack::all) {
    spool.remove(entry);
    return;
  }
  keep(spool, entry, "its producer died, and the place of its input is taken", monitor);
}

/// True for what no one will go on with. A producer makes its directory, then the ticket, locks it, and only then the
/// rest: so what is empty may be a living one's for an instant, which makes it anew if it's gone; and what holds
/// something but no ticket is what a removal has left.
bool is_abandoned(const Entry& entry) {
  if (::rmdir(entry.path.c_str()) == 0 || errno == ENOENT || errno == ENOTDIR) return false;
  const auto ticket = os::open_if_exists(entry.ticket(), O_RDWR | O_NOFOLLOW);
  return !ticket || os::try_lock(*ticket, entry.ticket());
}

/// What was on its way out, and intents that were never published: no input is in them.
void clean_scratch(const Spool& spool) {
  os::remove_dead_temporaries(spool.scratch());
  for (const std::string& name : os::list_directory(spool.scratch()).value_or(std::vector<std::string>{})) {
    if (name.starts_with(os::temporary_prefix)) continue;
    const Entry entry{.name = {}, .path = spool.scratch() + "/" + name};
    if (!is_abandoned(entry)) continue;
    std::error_code ignored;  // for the next one
    std::filesystem::remove_all(entry.path, ignored);
  }
}

}  // namespace

void recover(const Spool& spool, Monitor& monitor) {
  for (const Entry& entry : spool.entries(Stage::incoming)) {
    if (const auto taken = try_to_take(entry)) finish_or_give_back(spool, entry, monitor);
  }
  clean_scratch(spool);
}

}  // namespace ckpt::doors

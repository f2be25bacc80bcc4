// SPDX-License-Identifier: Apache-2.0
#include "doors/spool_outlet.hpp"

#include "core/stop.hpp"
#include "doors/consumed_input.hpp"
#include "doors/spool_moves.hpp"
#include "doors/spool_room.hpp"
#include "doors/tree_builder.hpp"
#include "os/file_copy.hpp"
#include "os/file_lock.hpp"
#include "os/small_file.hpp"
#include "source/steady.hpp"
#include "store/skipping.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>

namespace ckpt::doors {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto poll = std::chrono::milliseconds(20);
constexpr auto room_patience = std::chrono::seconds(10);

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// An entry that belongs to this process as long as this lives: if that ends before it's staged, what was accepted is
/// given back.
struct Held {
  Entry entry;
  os::Fd lock;
};

/// In the spool's scratch directory, where no one looks for entries.
Held write_intent(const Spool& spool, const Ticket& ticket, const Intent& intent) {
  while (true) {
    Entry entry{.name = {}, .path = spool.scratch() + "/" + os::unique_name()};
    if (::mkdir(entry.path.c_str(), 0777) != 0) os::throw_errno(errno, "cannot make '" + entry.path + "'");
    // A cleaner that meets the directory while it's empty takes it for a dead one's.
    const int fd = ::open(entry.ticket().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno == ENOENT) continue;
    if (fd < 0) os::throw_errno(errno, "cannot make '" + entry.ticket() + "'");
    Held held{.entry = entry, .lock = os::Fd(fd)};
    if (!os::try_lock(held.lock, entry.ticket())) continue;
    // A cleaner may have met the ticket before it was locked.
    if (os::stat_of(held.lock, entry.ticket()).st_nlink == 0) continue;
    os::write_small_file(entry.ticket(), encode_ticket(ticket));
    os::write_small_file(entry.intent(), encode_intent(intent));
    return held;
  }
}

std::uint64_t next_number(const Spool& spool, const EntryName& name) {
  std::uint64_t next = 0;
  for (const Stage stage : {Stage::incoming, Stage::staged}) {
    for (const Entry& entry : spool.entries(stage)) {
      if (entry.name.set.step == name.set.step) next = std::max(next, entry.name.number + 1);
    }
  }
  return next;
}

void require_steady(const std::vector<source::TreeEntry>& entries, const std::string& moved_to) {
  for (const source::TreeEntry& entry : entries) {
    if (entry.file.type != format::EntryType::file) continue;
    const std::string path = moved_to.empty() ? entry.origin : moved_to + "/" + entry.file.path;
    source::require_not_open_for_writing(entry, os::open(path, O_RDONLY));
  }
}

/// Copies what was found into a new tree; says which way.
std::string copy_in(const Parcel& parcel, const std::string& tree, Monitor& monitor) {
  TreeBuilder builder(tree);
  const std::uint64_t total = parcel.ticket.raw_bytes;
  std::uint64_t done = 0;
  bool cloned = true;
  for (const source::TreeEntry& entry : parcel.entries) {
    if (entry.file.type != format::EntryType::file) {
      builder.add(entry.file);
      continue;
    }
    const os::Fd from = os::open(entry.origin, O_RDONLY);
    source::require_unchanged(entry, from);
    source::require_not_open_for_writing(entry, from);
    const os::Fd to = builder.create_file(entry.file);
    const auto how = os::copy_content(from, entry.origin, to, builder.path_of(entry.file.path), entry.file.size,
                                      [&](std::uint64_t n) {
                                        require_no_stop(monitor);
                                        monitor.progress({.stage = "stage", .done = done + n, .total = total});
                                      });
    if (entry.file.size > 0) cloned = cloned && how == os::Copied::cloned;
    done += entry.file.size;
    source::require_unchanged(entry, from);
    builder.finish_file(to, entry.file);
  }
  builder.finish();
  return cloned && total > 0 ? "reflink" : "copy";
}

/// The way of one save into the spool.
class HandOver {
 public:
  HandOver(const Spool& spool, const store::Store& store, const Parcel& parcel, Monitor& monitor)
      : spool_(spool), store_(store), parcel_(parcel), monitor_(monitor) {}

  Receipt run() {
    const SaveOptions& save = parcel_.ticket.save;
    name_ = {.set = {.step = save.step, .world_size = save.world_size, .attempt = save.attempt.value_or(0)},
             .rank = save.rank,
             .number = 0};
    if (auto skipped = agree()) return *skipped;
    require_steady(parcel_.entries, {});
    Intent intent;
    if (parcel_.options.consume) {
      if (auto moves = plan_moves(save, parcel_.entries)) intent = {.by_moving = true, .moves = std::move(*moves)};
    }
    Held held = write_intent(spool_, parcel_.ticket, intent);
    if (auto skipped = find_room(held)) {
      spool_.remove(held.entry);
      return *skipped;
    }
    try {
      return bring_in(held, intent);
    } catch (...) {
      abandon(held, intent);
      throw;
    }
  }

 private:
  static Receipt skipped(std::string reason) {
    return {.state = SaveState::skipped, .how = {}, .reason = std::move(reason)};
  }

  /// Says for all ranks that this set is saved, unless it may still be skipped.
  std::optional<Receipt> agree() {
    auto reason = parcel_.options.when_full == WhenFull::skip ? store::why_skipped(store_, name_.set)
                                                              : store::decide_to_save(store_, name_.set);
    if (parcel_.options.when_full == WhenFull::skip && name_.set.world_size == 1) reason.reset();  // its own last word
    if (!reason) return std::nullopt;
    return skipped(std::move(*reason));
  }

  /// Publishes the intent as soon as there's room.
  std::optional<Receipt> find_room(Held& held) {
    const StageOptions& options = parcel_.options;
    const bool limited = options.limit.bytes || options.limit.saves;
    const auto start = Clock::now();
    for (bool may_skip = options.when_full == WhenFull::skip;;) {
      {
        const os::FileLock lock(spool_.room_path(), room_patience);
        const std::string full =
            limited ? why_full(load_of(spool_), options.limit, parcel_.ticket.raw_bytes) : std::string();
        if (full.empty()) {
          // Others may have decided while this one looked.
          if (may_skip) {
            if (auto reason = store::decide_to_save(store_, name_.set)) return skipped(std::move(*reason));
          }
          publish(held);
          return std::nullopt;
        }
        if (may_skip && store::decide_to_skip(store_, name_.set, full)) return skipped(full);
        may_skip = false;  // another rank has saved it: so must this one
        if (options.when_full == WhenFull::fail) give_up(held, full);
        if (options.timeout_seconds > 0 && seconds_since(start) > options.timeout_seconds) give_up(held, full);
      }
      if (monitor_.stop_requested()) {
        spool_.remove(held.entry);
        require_no_stop(monitor_);
      }
      std::this_thread::sleep_for(poll);
    }
  }

  [[noreturn]] void give_up(const Held& held, const std::string& full) {
    spool_.remove(held.entry);
    throw Error(Errc::busy, "spool '" + spool_.path() + "' is full: " + full)
        .with_hint("wait until it's drained (ckpt-wait), or let more in (--max-staged)");
  }

  void publish(Held& held) {
    held.entry.name = name_;
    held.entry.name.number = next_number(spool_, name_);
    const auto published = spool_.move(held.entry, Stage::incoming);
    if (!published) throw Error(Errc::busy, "'" + held.entry.path + "' was taken away");
    held.entry = *published;
  }

  Receipt bring_in(Held& held, const Intent& intent) {
    std::string how;
    if (intent.by_moving && move_in(intent.moves, held.entry.tree())) {
      how = "rename";
      require_steady(parcel_.entries, held.entry.tree());
    } else {
      if (intent.by_moving) drop_plan(held);
      how = copy_in(parcel_, held.entry.tree(), monitor_);
    }
    write_staging(held.entry.path, {.how = how, .seconds = seconds_since(start_)});
    if (!spool_.move(held.entry, Stage::staged))
      throw Error(Errc::busy, "'" + held.entry.path + "' was taken away before it was staged");
    if (parcel_.options.consume && how != "rename") remove_inputs(parcel_.entries, monitor_);
    if (parcel_.options.consume) remove_empty_operands();
    return {.state = SaveState::staged, .how = how, .reason = {}};
  }

  /// The input stays where it is and is copied: a recovery mustn't take a half copy for what was moved.
  void drop_plan(const Held& held) const {
    std::error_code failure;
    std::filesystem::remove_all(held.entry.tree(), failure);
    if (failure) throw Error(Errc::io, "cannot remove '" + held.entry.tree() + "'", failure.value());
    const std::string fresh = held.entry.intent() + ".new";
    os::write_small_file(fresh, encode_intent({}));
    if (::rename(fresh.c_str(), held.entry.intent().c_str()) != 0)
      os::throw_errno(errno, "cannot rename '" + fresh + "'");
  }

  /// What moved goes back; what can't, since something else is at its place now, is kept with the dead letters.
  void abandon(const Held& held, const Intent& intent) const {
    if (!intent.by_moving || move_back(intent.moves, held.entry.tree()) == MovedBack::all) {
      spool_.remove(held.entry);
      return;
    }
    write_trouble(held.entry.path, {.failures = 2, .reason = "handing it over failed, and its place was taken"});
    if (const auto kept = spool_.move(held.entry, Stage::failed))
      monitor_.warning("an input that couldn't be moved back is in '" + kept->tree() + "'");
  }

  /// Directories whose contents are gone go too; what was made in them since stays.
  void remove_empty_operands() const {
    const SaveOptions& save = parcel_.ticket.save;
    if (save.directory) return;
    for (const std::string& operand : save.sources) ::rmdir(operand.c_str());
  }

  const Spool& spool_;
  const store::Store& store_;
  const Parcel& parcel_;
  Monitor& monitor_;
  EntryName name_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace

Receipt SpoolOutlet::hand_over(const Parcel& parcel, Monitor& monitor) {
  const store::Store store = store::Store::open(store_);
  return HandOver(spool_, store, parcel, monitor).run();
}

}  // namespace ckpt::doors

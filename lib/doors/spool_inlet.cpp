// SPDX-License-Identifier: Apache-2.0
#include "doors/spool_inlet.hpp"

#include "doors/spool_recovery.hpp"
#include "doors/spool_room.hpp"
#include "os/small_file.hpp"
#include "store/attempts.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <algorithm>
#include <thread>

namespace ckpt::doors {
namespace {

constexpr auto first_pause = std::chrono::milliseconds(250);
constexpr auto longest_pause = std::chrono::milliseconds(30'000);
constexpr std::uint64_t most_failures = 2;

/// Who lists a spool holds an entry's lock for an instant.
std::optional<os::Fd> take(const Entry& entry) {
  for (int i = 0; i < 20; ++i) {
    if (auto lock = try_to_take(entry)) return lock;
    if (!os::exists(entry.ticket())) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return std::nullopt;
}

std::string key_of(const Entry& entry) { return to_string(entry.name); }

}  // namespace

class SpoolClaim final : public Claim {
 public:
  SpoolClaim(SpoolInlet& inlet, Entry entry, os::Fd lock, Ticket ticket)
      : inlet_(inlet), entry_(std::move(entry)), lock_(std::move(lock)), ticket_(std::move(ticket)) {}

  [[nodiscard]] const Ticket& ticket() const override { return ticket_; }

  [[nodiscard]] std::string fetch(Monitor&) override { return entry_.tree(); }

  [[nodiscard]] std::optional<double> stall_seconds() const override {
    const auto staging = read_staging(entry_);
    if (!staging) return std::nullopt;
    return staging->seconds;
  }

  void done(const SaveReport&) override {
    inlet_.pauses_.erase(key_of(entry_));
    inlet_.spool_.remove(entry_);
  }

  [[nodiscard]] bool fail(const std::string& reason) override {
    const std::uint64_t failures = read_trouble(entry_).value_or(Trouble{}).failures + 1;
    // Where that can't be written down it isn't counted: it's tried again later.
    if (!note_trouble({.failures = failures, .reason = reason}) || failures < most_failures) {
      inlet_.pause(entry_);
      return false;
    }
    inlet_.pauses_.erase(key_of(entry_));
    (void)inlet_.spool_.move(entry_, Stage::failed);
    return true;
  }

  void release(const std::string& reason) override {
    if (reason.empty()) return;
    (void)note_trouble({.failures = read_trouble(entry_).value_or(Trouble{}).failures, .reason = reason});
    inlet_.pause(entry_);
  }

 private:
  /// False on a full disk.
  [[nodiscard]] bool note_trouble(const Trouble& trouble) const {
    try {
      write_trouble(entry_.path, trouble);
      return true;
    } catch (const Error& error) {
      if (error.code() != Errc::no_space && error.code() != Errc::io) throw;
      return false;
    }
  }

  SpoolInlet& inlet_;
  Entry entry_;
  os::Fd lock_;
  Ticket ticket_;
};

std::unique_ptr<SpoolInlet> SpoolInlet::open(Spool spool, const std::string& store, Monitor& monitor) {
  os::Fd lock = os::open(spool.lock_path(), O_RDWR | O_CREAT, 0666);
  if (!os::try_lock(lock, spool.lock_path())) return nullptr;
  recover(spool, monitor);
  return std::unique_ptr<SpoolInlet>(new SpoolInlet(std::move(spool), store, std::move(lock)));
}

bool SpoolInlet::is_pausing(const Entry& entry) const {
  const auto pause = pauses_.find(key_of(entry));
  return pause != pauses_.end() && Clock::now() < pause->second.until;
}

void SpoolInlet::pause(const Entry& entry) {
  const auto known = pauses_.find(key_of(entry));
  const auto length = known == pauses_.end() ? first_pause : std::min(longest_pause, known->second.length * 2);
  pauses_.insert_or_assign(key_of(entry), Pause{.until = Clock::now() + length, .length = length});
}

std::unique_ptr<Claim> SpoolInlet::claim(Monitor& monitor) {
  recover(spool_, monitor);
  for (const Entry& entry : spool_.entries(Stage::staged)) {
    if (is_pausing(entry)) continue;
    auto lock = take(entry);
    if (!lock) {
      keep_if_broken(entry, monitor);
      continue;
    }
    const std::uint64_t highest =
        os::exists(store_ + "/" + store::description_file) ? store::highest_attempt(store::Store::open(store_)) : 0;
    if (entry.name.set.attempt < highest) {
      monitor.note("'" + entry.path + "' is of an attempt that is over");
      (void)spool_.move(entry, Stage::retired);
      continue;
    }
    try {
      Ticket ticket = read_ticket(entry);
      return std::make_unique<SpoolClaim>(*this, entry, std::move(*lock), std::move(ticket));
    } catch (const Error& error) {
      if (error.code() == Errc::not_found) continue;
      if (error.code() != Errc::damaged && error.code() != Errc::unsupported) throw;
      keep(entry, error.what(), monitor);
    }
  }
  return nullptr;
}

/// Without its ticket no one knows what to do with an entry.
void SpoolInlet::keep_if_broken(const Entry& entry, Monitor& monitor) const {
  if (os::exists(entry.path) && !os::exists(entry.ticket())) keep(entry, "its ticket is gone", monitor);
}

void SpoolInlet::keep(const Entry& entry, const std::string& why, Monitor& monitor) const {
  // Before it moves: whoever finds it there asks why. On a full disk only the warning says it.
  try {
    write_trouble(entry.path, {.failures = most_failures, .reason = why});
  } catch (const Error& error) {
    if (error.code() == Errc::not_found) return;
    if (error.code() != Errc::no_space && error.code() != Errc::io) throw;
  }
  if (const auto kept = spool_.move(entry, Stage::failed)) monitor.warning("'" + kept->path + "': " + why);
}

Backlog SpoolInlet::backlog() {
  const Load load = load_of(spool_);
  Backlog backlog{.saves = load.saves,
                  .bytes = load.bytes,
                  .oldest_seconds = 0,
                  .dead_letters = spool_.entries(Stage::failed).size()};
  if (load.oldest_ns) backlog.oldest_seconds = std::max(0.0, static_cast<double>(now_ns() - *load.oldest_ns) / 1e9);
  return backlog;
}

bool SpoolInlet::is_drained() const {
  const std::vector<Entry> incoming = spool_.entries(Stage::incoming);
  return spool_.entries(Stage::staged).empty() && std::all_of(incoming.begin(), incoming.end(), is_in_hand);
}

}  // namespace ckpt::doors

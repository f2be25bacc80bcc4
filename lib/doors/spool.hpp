// SPDX-License-Identifier: Apache-2.0
// The spool: a directory of saves that were accepted and aren't in the store yet.
//
//   SPOOL/spool.json                         the store that it belongs to, if it lies elsewhere
//   SPOOL/lock                               locked by the one who drains it
//   SPOOL/room.lock                          locked while room is looked for and taken
//   SPOOL/tmp/                               entries in the making, and on their way out
//   SPOOL/incoming/ENTRY/                    an intent: its input is on the way
//   SPOOL/staged/ENTRY/                      accepted
//   SPOOL/failed/ENTRY/                      failed twice; kept, with the reason
//   SPOOL/retired/ENTRY/                     of an attempt that is over
//   ENTRY = 0000001000.00003-of-00008.2.17   step, rank, world size, attempt, number
//   ENTRY/ticket.json                        what was asked for; locked by whoever has the entry in hand
//   ENTRY/intent.json                        where the input comes from
//   ENTRY/staged.json                        how it got here and how long that took
//   ENTRY/trouble.json                       how often it failed, and why
//   ENTRY/tree/                              the input
//
// An entry moves from one directory to the next by one rename. Nothing in here is synced: what is staged outlives every
// process, and not a power cut.
#pragma once

#include "doors/ticket.hpp"
#include "os/fd.hpp"
#include "store/layout.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::doors {

struct EntryName {
  store::SetKey set;
  std::uint32_t rank = 0;
  std::uint64_t number = 0;
};
[[nodiscard]] std::string to_string(const EntryName& name);
[[nodiscard]] std::optional<EntryName> parse_entry_name(std::string_view name);

/// The places that an entry can be in.
enum class Stage { incoming, staged, failed, retired };

struct Trouble {
  std::uint64_t failures = 0;
  std::string reason;
};

struct Staging {
  std::string how;  ///< "rename", "reflink", "copy"
  double seconds = 0;
};

/// One entry where it lies now. Plain; holds nothing open.
struct Entry {
  EntryName name;
  std::string path;

  [[nodiscard]] std::string ticket() const { return path + "/ticket.json"; }
  [[nodiscard]] std::string intent() const { return path + "/intent.json"; }
  [[nodiscard]] std::string tree() const { return path + "/tree"; }
};

/// Throws Damaged, not_found, unsupported.
[[nodiscard]] Ticket read_ticket(const Entry& entry);
/// Nothing if it isn't there or can't be believed: these are for reports.
[[nodiscard]] std::optional<Staging> read_staging(const Entry& entry);
[[nodiscard]] std::optional<Trouble> read_trouble(const Entry& entry);
void write_staging(const std::string& entry_path, const Staging& staging);
void write_trouble(const std::string& entry_path, const Trouble& trouble);

/// Takes the lock of an entry, which its producer holds until it's staged, and a server while it saves it. Nothing if
/// another has it, or it's gone.
[[nodiscard]] std::optional<os::Fd> try_to_take(const Entry& entry);
/// True if someone has it in hand. Changes nothing.
[[nodiscard]] bool is_in_hand(const Entry& entry);

class Spool {
 public:
  /// Makes what is missing of it. If it isn't the store's own, the store gets a pointer to it, and it one to the store.
  /// Throws exists if it's another store's; io.
  [[nodiscard]] static Spool make(const std::string& path, const std::string& store);
  /// Nothing if there's no spool at `path`.
  [[nodiscard]] static std::optional<Spool> find(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string directory(Stage stage) const;
  [[nodiscard]] std::string scratch() const { return path_ + "/tmp"; }
  [[nodiscard]] std::string lock_path() const { return path_ + "/lock"; }
  [[nodiscard]] std::string room_path() const { return path_ + "/room.lock"; }

  /// In order of step, attempt, rank and number.
  [[nodiscard]] std::vector<Entry> entries(Stage stage) const;

  /// Moves an entry in one rename to a free name there; nothing if it's gone.
  std::optional<Entry> move(const Entry& entry, Stage to) const;
  /// Gives up an entry and all that is in it.
  void remove(const Entry& entry) const;

 private:
  explicit Spool(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

/// In a directory of .spool/HOST/: names of links to spools elsewhere begin so.
inline constexpr std::string_view pointer_prefix = "elsewhere-";

/// The store's own spool on this host.
[[nodiscard]] std::string own_spool_path(const std::string& store);

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
#include "doors/spool.hpp"

#include "core/digest.hpp"
#include "core/percent_text.hpp"
#include "format/damaged.hpp"
#include "format/json_fields.hpp"
#include "format/sealed_json.hpp"
#include "os/file_copy.hpp"
#include "os/file_lock.hpp"
#include "os/small_file.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

namespace ckpt::doors {
namespace {

constexpr const char* spool_format = "ckpt-spool";
constexpr std::uint64_t small = 1U << 16U;

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::string_view take_until(std::string_view& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + mark.size());
  return head;
}

std::string real_path(const std::string& path) {
  std::array<char, PATH_MAX> resolved{};
  if (::realpath(path.c_str(), resolved.data()) == nullptr) os::throw_errno(errno, "cannot find '" + path + "'");
  return resolved.data();
}

/// Nothing if it isn't there or isn't what it should be.
std::optional<nlohmann::ordered_json> read_report(const std::string& path) {
  try {
    const auto text = os::read_small_file(path, small);
    if (!text) return std::nullopt;
    return format::unseal(*text, path);
  } catch (const Error& error) {
    if (error.code() != Errc::damaged) throw;
    return std::nullopt;
  }
}

/// Replaced as a whole: who reads it meanwhile sees one or the other.
void write_report(const std::string& path, const nlohmann::ordered_json& object) {
  const std::string fresh = path + "." + os::unique_name();
  os::write_small_file(fresh, format::seal(object));
  if (::rename(fresh.c_str(), path.c_str()) != 0) os::throw_errno(errno, "cannot rename '" + fresh + "'");
}

/// The store that a spool elsewhere belongs to.
std::optional<std::string> owner_of(const std::string& spool) {
  const std::string path = spool + "/spool.json";
  const auto text = os::read_small_file(path, small);
  if (!text) return std::nullopt;
  const nlohmann::ordered_json object = format::unseal(*text, path);
  const format::JsonFields fields(object, path);
  (void)fields.check_version(spool_format);
  const auto store = percent_decode(fields.text("store"));
  if (!store) fields.fail("field 'store' is not a path");
  return *store;
}

void join_with_store(const std::string& spool, const std::string& store) {
  const std::string store_path = real_path(store);
  if (const auto owner = owner_of(spool)) {
    if (*owner == store_path) return;
    throw Error(Errc::exists, "spool '" + spool + "' belongs to store '" + *owner + "'")
        .with_hint("give each store a directory of its own, as --spool=DIR");
  }
  nlohmann::ordered_json object = format::json_head(spool_format);
  object["store"] = percent_encode(store_path);
  os::publish_small_file(spool + "/spool.json", format::seal(object), os::Publish::first_wins, spool + "/tmp");
  if (owner_of(spool) != store_path) join_with_store(spool, store);  // another store was first: says so
}

/// So that who looks at the store finds the spool.
void point_to(const std::string& spool, const std::string& store) {
  const std::string own = own_spool_path(store);
  const std::string target = real_path(spool);
  os::make_directories(own);
  const std::string name = to_hex(xxh3_128(std::string_view(target))).substr(0, 16);
  const std::string pointer = own + "/" + std::string(pointer_prefix) + name;
  if (::symlink(target.c_str(), pointer.c_str()) == 0) {
    os::sync_directory(own);
    return;
  }
  if (errno != EEXIST) os::throw_errno(errno, "cannot make '" + pointer + "'");
}

/// What was handed over may hold directories that not even their owner may write to.
void open_directories(const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code ignored;  // the removal says what is left
  fs::permissions(root, fs::perms::owner_all, fs::perm_options::add, ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(root, ignored)) {
    if (entry.is_directory(ignored) && !entry.is_symlink(ignored)) open_directories(entry.path().string());
  }
}

}  // namespace

std::string to_string(const EntryName& name) {
  return fmt::format("{}.{:05}-of-{:05}.{}.{}", store::step_name(name.set.step), name.rank, name.set.world_size,
                     name.set.attempt, name.number);
}

std::optional<EntryName> parse_entry_name(std::string_view text) {
  const auto step = store::parse_step_name(take_until(text, "."));
  const auto rank = parse_whole<std::uint32_t>(take_until(text, "-of-"));
  const auto world_size = parse_whole<std::uint32_t>(take_until(text, "."));
  const auto attempt = parse_whole<std::uint64_t>(take_until(text, "."));
  const auto number = parse_whole<std::uint64_t>(text);
  if (!step || !rank || !world_size || !attempt || !number || *rank >= *world_size) return std::nullopt;
  return EntryName{
      .set = {.step = *step, .world_size = *world_size, .attempt = *attempt}, .rank = *rank, .number = *number};
}

Ticket read_ticket(const Entry& entry) {
  const auto text = os::read_small_file(entry.ticket(), max_ticket_size);
  if (!text) throw Error(Errc::not_found, "'" + entry.ticket() + "' is gone");
  return decode_ticket(*text, entry.ticket());
}

std::optional<Staging> read_staging(const Entry& entry) {
  const auto object = read_report(entry.path + "/staged.json");
  if (!object) return std::nullopt;
  return Staging{.how = object->value("how", ""), .seconds = object->value("seconds", 0.0)};
}

std::optional<Trouble> read_trouble(const Entry& entry) {
  const auto object = read_report(entry.path + "/trouble.json");
  if (!object) return std::nullopt;
  return Trouble{.failures = object->value("failures", std::uint64_t{0}), .reason = object->value("reason", "")};
}

void write_staging(const std::string& entry_path, const Staging& staging) {
  write_report(entry_path + "/staged.json", {{"how", staging.how}, {"seconds", staging.seconds}});
}

void write_trouble(const std::string& entry_path, const Trouble& trouble) {
  write_report(entry_path + "/trouble.json", {{"failures", trouble.failures}, {"reason", trouble.reason}});
}

std::optional<os::Fd> try_to_take(const Entry& entry) {
  auto ticket = os::open_if_exists(entry.ticket(), O_RDWR | O_NOFOLLOW);
  if (!ticket || !os::try_lock(*ticket, entry.ticket())) return std::nullopt;
  // It may have moved on, or away, before it was locked.
  if (!os::exists(entry.ticket())) return std::nullopt;
  return ticket;
}

bool is_in_hand(const Entry& entry) {
  const auto ticket = os::open_if_exists(entry.ticket(), O_RDONLY | O_NOFOLLOW);
  if (!ticket) return false;
  if (::flock(ticket->get(), LOCK_SH | LOCK_NB) == 0) return false;
  return errno == EWOULDBLOCK;
}

std::string Spool::directory(Stage stage) const {
  switch (stage) {
    case Stage::incoming: return path_ + "/incoming";
    case Stage::staged: return path_ + "/staged";
    case Stage::failed: return path_ + "/failed";
    case Stage::retired: break;
  }
  return path_ + "/retired";
}

Spool Spool::make(const std::string& path, const std::string& store) {
  Spool spool(path);
  os::make_directories(spool.scratch());
  const bool is_own = real_path(path) == real_path(store) + "/.spool/" + os::host_name();
  if (!is_own) {
    join_with_store(path, store);
    point_to(path, store);
  }
  for (const Stage stage : {Stage::incoming, Stage::staged, Stage::failed, Stage::retired})
    os::make_directory(spool.directory(stage));
  return spool;
}

std::optional<Spool> Spool::find(const std::string& path) {
  Spool spool(path);
  if (!os::exists(spool.directory(Stage::staged))) return std::nullopt;
  return spool;
}

std::vector<Entry> Spool::entries(Stage stage) const {
  std::vector<Entry> found;
  const std::string directory = this->directory(stage);
  for (const std::string& name : os::list_directory(directory).value_or(std::vector<std::string>{})) {
    if (const auto parsed = parse_entry_name(name)) found.push_back({.name = *parsed, .path = directory + "/" + name});
  }
  std::sort(found.begin(), found.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.name.set.step, a.name.set.attempt, a.name.rank, a.name.number) <
           std::tie(b.name.set.step, b.name.set.attempt, b.name.rank, b.name.number);
  });
  return found;
}

std::optional<Entry> Spool::move(const Entry& entry, Stage to) const {
  Entry moved = entry;
  while (true) {
    moved.path = directory(to) + "/" + to_string(moved.name);
    if (os::rename_to_free_name(entry.path, moved.path)) return moved;
    if (!os::exists(entry.path)) return std::nullopt;
    ++moved.name.number;
  }
}

void Spool::remove(const Entry& entry) const {
  const std::string away = scratch() + "/" + os::unique_name();
  if (::rename(entry.path.c_str(), away.c_str()) != 0) {
    if (errno == ENOENT) return;
    os::throw_errno(errno, "cannot rename '" + entry.path + "' to '" + away + "'");
  }
  std::error_code failure;
  std::filesystem::remove_all(away, failure);
  if (failure == std::errc::permission_denied) {
    open_directories(away);
    std::filesystem::remove_all(away, failure);
  }
  if (failure) throw Error(Errc::io, "cannot remove '" + away + "': " + failure.message(), failure.value());
}

std::string own_spool_path(const std::string& store) { return store + "/.spool/" + os::host_name(); }

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
#include "store/pins.hpp"

#include "format/damaged.hpp"
#include "os/small_file.hpp"
#include "store/swap.hpp"

#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <set>

namespace ckpt::store {
namespace {

constexpr std::string_view user_prefix = "pin.";
constexpr std::string_view process_prefix = "use.";

std::string content_name(std::uint64_t step, const Digest& id) { return step_name(step) + "-" + to_hex(id); }

std::optional<PinEntry> parse_pin(std::string_view name) {
  const bool by_user = name.starts_with(user_prefix);
  if (!by_user && !name.starts_with(process_prefix)) return std::nullopt;
  name.remove_prefix(name.rfind('.') + 1);
  const std::size_t dash = name.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto step = parse_step_name(name.substr(0, dash));
  const auto id = digest_from_hex(name.substr(dash + 1));
  if (!step || !id) return std::nullopt;
  return PinEntry{.step = *step, .id = *id, .by_user = by_user};
}

/// As it was when it was found: not removed, not retired, not replaced.
bool is_still_there(const Checkpoint& checkpoint) {
  try {
    const auto manifest = read_manifest(checkpoint.directory);
    return manifest && manifest->id == checkpoint.manifest.id;
  } catch (const format::Damaged&) {
    return false;
  }
}

std::unique_ptr<os::TemporaryFile> make_entry(const Store& store, const Checkpoint& checkpoint) {
  const std::string content = content_name(checkpoint.manifest.step, checkpoint.manifest.id);
  return std::make_unique<os::TemporaryFile>(store.pins(), 0444, process_prefix, content);
}

}  // namespace

std::optional<Pin> Pin::take(const Store& store, const Checkpoint& checkpoint) {
  os::make_directory(store.pins());
  auto entry = make_entry(store, checkpoint);
  os::sync(entry->fd(), entry->path());
  os::sync_directory(store.pins());
  // Who announces a swap looks at the pins afterwards: one of the two sees the other.
  if (!is_still_there(checkpoint) || swap_is_announced(store, checkpoint)) return std::nullopt;
  return Pin(std::move(entry));
}

std::optional<Pin> Pin::try_to_hold(const Store& store, const Checkpoint& checkpoint) {
  // The directory is a writer's to make: one of a reader's might keep the writers out.
  if (!os::exists(store.pins())) return std::nullopt;
  try {
    auto entry = make_entry(store, checkpoint);
    if (!is_still_there(checkpoint)) return std::nullopt;
    return Pin(std::move(entry));
  } catch (const Error&) {
    return std::nullopt;  // read-only, full, another user's
  }
}

std::vector<PinEntry> read_pins(const Store& store) {
  const std::set<std::string> dead = os::unlocked_temporaries(store.pins(), process_prefix);
  std::vector<PinEntry> pins;
  for (const std::string& name : os::list_directory(store.pins()).value_or(std::vector<std::string>{})) {
    const auto pin = parse_pin(name);
    if (pin && !dead.contains(name)) pins.push_back(*pin);
  }
  return pins;
}

Pinned pinned_by(const std::vector<PinEntry>& pins, const format::Manifest& manifest, bool retired) {
  Pinned pinned;
  for (const PinEntry& pin : pins) {
    if (pin.by_user) {
      const bool same_step = pin.step == manifest.step;
      pinned.by_user = pinned.by_user || (same_step && (!retired || pin.id == manifest.id));
    } else {
      pinned.in_use = pinned.in_use || pin.id == manifest.id;
    }
  }
  return pinned;
}

void add_user_pin(const Store& store, std::uint64_t step) {
  const Selector selector{.kind = Selector::Kind::step, .step = step, .back = 0, .id_prefix = {}};
  const Checkpoint checkpoint = store.resolve(selector);
  os::make_directory(store.pins());
  const std::string path = store.pins() + "/" + std::string(user_prefix) + content_name(step, checkpoint.manifest.id);
  const bool is_new = os::publish_small_file(path, {}, os::Publish::first_wins, store.scratch());
  // A prune may have taken it away before it saw the pin.
  try {
    (void)store.resolve(selector);
  } catch (const Error&) {
    if (is_new) ::unlink(path.c_str());
    throw;
  }
}

void remove_user_pin(const Store& store, std::uint64_t step) {
  bool any = false;
  for (const std::string& name : os::list_directory(store.pins()).value_or(std::vector<std::string>{})) {
    const auto pin = parse_pin(name);
    if (!pin || !pin->by_user || pin->step != step) continue;
    const std::string path = store.pins() + "/" + name;
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) os::throw_errno(errno, "cannot remove '" + path + "'");
    any = true;
  }
  if (!any) throw Error(Errc::not_found, "'" + store.address(step) + "' is not pinned");
  os::sync_directory(store.pins());
}

void remove_dead_pins(const Store& store) {
  os::remove_dead_temporaries(store.pins(), process_prefix);
  os::remove_dead_temporaries(store.pins());  // of a clean-up that died
}

}  // namespace ckpt::store

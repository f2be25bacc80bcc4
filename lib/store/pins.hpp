// SPDX-License-Identifier: Apache-2.0
// Pins keep a checkpoint from being removed. Each is an empty file in .pins/ whose name says all: a user's stays until
// it's taken away; a process's is locked as long as the process lives, so a dead one's is recognised.
//
//   .pins/pin.0000001000-IDDIGITS                     a user's
//   .pins/use.HOST.PROCESS.NUMBER.0000001000-IDDIGITS   a process's
//
// Who removes something renames it away first, then looks at the pins again; who pins makes the pin first, then looks
// whether what it pinned is still there. So one of the two always sees the other.
#pragma once

#include "os/temporary_file.hpp"
#include "store/store.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ckpt::store {

/// A process's pin; it goes with the object, or with the process. Movable.
class Pin {
 public:
  /// Durable when it comes back. Nothing if the checkpoint isn't there any more, has other content, or is being encoded
  /// anew, so that its chains may get longer: then it can't be depended on. Throws io, with EROFS, EACCES or EPERM
  /// where the store can't be written to.
  [[nodiscard]] static std::optional<Pin> take(const Store& store, const Checkpoint& checkpoint);
  /// For who reads for long and will do without if need be: nothing also where the store can't be written to. It needs
  /// not outlive a power cut, so it costs no sync.
  [[nodiscard]] static std::optional<Pin> try_to_hold(const Store& store, const Checkpoint& checkpoint);

 private:
  explicit Pin(std::unique_ptr<os::TemporaryFile> entry) : entry_(std::move(entry)) {}
  std::unique_ptr<os::TemporaryFile> entry_;
};

struct PinEntry {
  std::uint64_t step = 0;
  Digest id;
  bool by_user = false;
};
/// All but those of processes that are known to be dead. Changes nothing.
[[nodiscard]] std::vector<PinEntry> read_pins(const Store& store);

/// What pins mean for one checkpoint. A user pins a step, whatever content it has, and the content that it had then,
/// also once it's retired; a process pins content.
struct Pinned {
  bool by_user = false;
  bool in_use = false;
};
[[nodiscard]] Pinned pinned_by(const std::vector<PinEntry>& pins, const format::Manifest& manifest, bool retired);

/// Durable when it comes back. Errc::not_found if there's no such step.
void add_user_pin(const Store& store, std::uint64_t step);
/// Errc::not_found if the step isn't pinned.
void remove_user_pin(const Store& store, std::uint64_t step);

/// Removes the pins of dead processes.
void remove_dead_pins(const Store& store);

}  // namespace ckpt::store

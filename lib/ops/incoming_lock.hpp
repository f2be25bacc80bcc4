// SPDX-License-Identifier: Apache-2.0
// Who has the directory in which something from another store is put together. The lock is on a file that becomes the
// manifest, so that nothing but a checkpoint is left once the directory gets its name.
#pragma once

#include "os/fd.hpp"

#include <string>

namespace ckpt::ops {

/// In the directory.
inline constexpr const char* incoming_lock = "/manifest.part";

/// Makes the directory if need be, and has it alone from now on. What another finished meanwhile is gone by then.
/// Throws busy if another has it for long.
[[nodiscard]] os::Fd lock_incoming(const std::string& directory);

/// True if the directory is one that a locker on this host was making and hasn't given its name yet: one that died
/// over it left nothing in it, and it's removed.
[[nodiscard]] bool remove_if_never_named(const std::string& directory);

void rename_or_throw(const std::string& from, const std::string& to);

}  // namespace ckpt::ops

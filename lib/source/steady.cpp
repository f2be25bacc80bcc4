// SPDX-License-Identifier: Apache-2.0
#include "source/steady.hpp"

#include "os/write_lease.hpp"

#include <ckpt/error.hpp>

namespace ckpt::source {

void require_unchanged(const TreeEntry& entry, const os::Fd& fd) {
  if (is_unchanged(entry.status, os::stat_of(fd, entry.origin))) return;
  throw Error(Errc::busy, "'" + entry.origin + "' changed while it was being read")
      .with_hint("save it again once its writer is done");
}

void require_not_open_for_writing(const TreeEntry& entry, const os::Fd& fd) {
  if (!os::is_open_for_writing(fd)) return;
  throw Error(Errc::busy, "'" + entry.origin + "' is open for writing in another process")
      .with_hint("save it again once its writer is done");
}

}  // namespace ckpt::source

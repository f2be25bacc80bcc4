// SPDX-License-Identifier: Apache-2.0
// How an operation speaks to its caller while it runs, and how the caller stops it.
#pragma once

#include <ckpt/export.hpp>

#include <cstdint>
#include <string_view>

namespace ckpt {

/// Bytes done of bytes in all, in one stage ("read", "write", "verify", "restore"). `total` may be 0: unknown.
struct Progress {
  std::string_view stage;
  std::uint64_t done = 0;
  std::uint64_t total = 0;
};

/// Implemented by the caller. Calls come from the thread that called the operation or from one of its
/// workers, never two at once. They must be quick and must not throw.
class CKPT_API Monitor {
 public:
  virtual ~Monitor();
  virtual void progress(const Progress& progress);
  /// Something the user should know although the operation succeeds.
  virtual void warning(std::string_view message);
  /// A detail for a verbose run.
  virtual void note(std::string_view message);
  /// Asked at block boundaries; true ends the operation with Errc::interrupted. May be called from any thread.
  [[nodiscard]] virtual bool stop_requested() const;
};

}  // namespace ckpt

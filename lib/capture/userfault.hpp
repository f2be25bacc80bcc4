// SPDX-License-Identifier: Apache-2.0
// userfaultfd(2), as far as write-protecting goes: a descriptor and its calls.
#pragma once

#include "capture/mapped_memory.hpp"
#include "os/fd.hpp"

namespace ckpt::capture {

struct UserfaultMessage {
  enum class Kind {
    none,   ///< nothing to read
    write,  ///< a thread waits to write to the page at at.begin
    gone,   ///< these addresses were unmapped, dropped or moved away: what they held, they hold no more
  };
  Kind kind = Kind::none;
  Interval at;
};

/// Thread-safe. The calls return errno, 0 for success; they neither allocate nor lock.
class Userfault {
 public:
  /// Throws unsupported, saying why.
  Userfault();

  [[nodiscard]] int descriptor() const noexcept { return fd_.get(); }
  /// Else pages that were never touched must be before they're protected.
  [[nodiscard]] bool protects_untouched() const noexcept { return protects_untouched_; }

  [[nodiscard]] int watch(Interval at) const noexcept;
  [[nodiscard]] int unwatch(Interval at) const noexcept;
  /// EAGAIN: a message about memory that's gone must be read first.
  [[nodiscard]] int protect(Interval at) const noexcept;
  /// As protect(). Who waits to write there goes on.
  [[nodiscard]] int lift(Interval at) const noexcept;
  /// Who waits to write there tries again.
  void wake(Interval at) const noexcept;

  /// True from before memory goes until the message of it has been read.
  [[nodiscard]] bool is_memory_going() const noexcept;
  [[nodiscard]] UserfaultMessage read_message() const noexcept;

 private:
  os::Fd fd_;
  bool protects_untouched_ = false;
};

}  // namespace ckpt::capture

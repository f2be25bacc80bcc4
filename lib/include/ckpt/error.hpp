// SPDX-License-Identifier: Apache-2.0
// The one exception that libckpt throws.
//
// An Error ends the operation that threw it: nothing is committed, nothing is left behind that the next
// writer doesn't clean up. What a caller expects as an answer (differs, damaged, none yet) is never an Error
// but a value in the operation's report.
#pragma once

#include <ckpt/export.hpp>

#include <stdexcept>
#include <string>

namespace ckpt {

/// Chosen by what the caller can do about it.
enum class Errc {
  invalid_argument,  ///< the call is wrong: mend the call
  not_found,         ///< a file, store or checkpoint isn't there
  exists,            ///< the name is taken by other content
  malformed,         ///< an input file isn't what it claims to be
  damaged,           ///< stored bytes fail their check: restore another checkpoint, or repair
  unsupported,       ///< written by a newer version, or not possible on this file system
  no_space,          ///< the disk or quota is full: free space
  busy,              ///< temporary: try again
  io,                ///< the operating system refused: see system_errno()
  interrupted,       ///< Monitor::stop_requested() said so
};

class CKPT_API Error : public std::runtime_error {
 public:
  /// `message` is lower case, without full stop, and names what failed, where and why.
  Error(Errc code, const std::string& message, int system_errno = 0);
  ~Error() override;

  [[nodiscard]] Errc code() const noexcept { return code_; }

  /// The errno behind it, or 0.
  [[nodiscard]] int system_errno() const noexcept { return errno_; }

  /// What the reader can do, as one line; empty if there's nothing to say.
  [[nodiscard]] const std::string& hint() const noexcept { return hint_; }
  Error&& with_hint(std::string hint) &&;

 private:
  Errc code_;
  int errno_;
  std::string hint_;
};

}  // namespace ckpt

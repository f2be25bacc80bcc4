// SPDX-License-Identifier: Apache-2.0
// From exceptions to what C callers get: a number, and words for it in the calling thread.
#pragma once

#include <ckpt/ckpt.h>
#include <ckpt/error.hpp>

#include <exception>
#include <new>
#include <string>

namespace ckpt::capi {

/// A failure as it's told.
struct Failure {
  ckpt_status status = CKPT_OK;
  std::string message;
  std::string hint;
};

/// Of the exception that is being handled.
[[nodiscard]] Failure current_failure();

/// What ckpt_message() and ckpt_hint() say in this thread from now on.
int tell(const Failure& failure);

/// Throws Errc::invalid_argument where a process is another than that which made an object.
class OwnProcess {
 public:
  OwnProcess();
  [[nodiscard]] bool is_here() const;
  void require() const;

 private:
  long process_;
};

/// Runs what may throw.
template <class Work>
int guarded(Work&& work) {
  try {
    work();
    return CKPT_OK;
  } catch (...) {
    return tell(current_failure());
  }
}

[[noreturn]] inline void refuse(const std::string& why) { throw Error(Errc::invalid_argument, why); }

/// For pointers that callers hand in.
template <class T>
T& required(T* pointer, const char* what) {
  if (pointer == nullptr) refuse(std::string(what) + " is a null pointer");
  return *pointer;
}

}  // namespace ckpt::capi

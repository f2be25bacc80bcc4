// SPDX-License-Identifier: Apache-2.0
#include "capi/status.hpp"

#include <ckpt/version.hpp>

#include <unistd.h>
#include <exception>

namespace ckpt::capi {
namespace {

thread_local Failure last;

ckpt_status status_of(Errc code) {
  switch (code) {
    case Errc::invalid_argument: return CKPT_INVALID;
    case Errc::not_found: return CKPT_NOT_FOUND;
    case Errc::exists: return CKPT_EXISTS;
    case Errc::malformed: return CKPT_MALFORMED;
    case Errc::damaged: return CKPT_DAMAGED;
    case Errc::unsupported: return CKPT_UNSUPPORTED;
    case Errc::no_space: return CKPT_NO_SPACE;
    case Errc::busy: return CKPT_BUSY;
    case Errc::io: return CKPT_IO;
    case Errc::interrupted: return CKPT_INTERRUPTED;
  }
  return CKPT_IO;
}

}  // namespace

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {.status = status_of(error.code()), .message = error.what(), .hint = error.hint()};
  } catch (const std::bad_alloc&) {
    return {.status = CKPT_NO_MEMORY, .message = "out of memory", .hint = {}};
  } catch (const std::exception& error) {
    return {.status = CKPT_IO, .message = error.what(), .hint = {}};
  }
}

int tell(const Failure& failure) {
  last = failure;
  return failure.status;
}

OwnProcess::OwnProcess() : process_(::getpid()) {}

bool OwnProcess::is_here() const { return process_ == ::getpid(); }

void OwnProcess::require() const {
  if (!is_here()) refuse("made by another process: a fork's child opens its own");
}

}  // namespace ckpt::capi

const char* ckpt_message(void) { return ckpt::capi::last.message.c_str(); }

const char* ckpt_hint(void) { return ckpt::capi::last.hint.c_str(); }

const char* ckpt_version(void) { return ckpt::version(); }

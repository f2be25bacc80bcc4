// SPDX-License-Identifier: Apache-2.0
// From what the C interface returns to exceptions.
#pragma once

#include <ckpt/torch_error.hpp>

#include <string>

namespace ckpt::torch {

/// Of the call that this thread made last.
[[nodiscard]] inline Error last_error(int status) {
  return {static_cast<ckpt_status>(status), ckpt_message(), ckpt_hint()};
}

inline void check(int status) {
  if (status != CKPT_OK) throw last_error(status);
}

[[noreturn]] inline void refuse(ckpt_status code, const std::string& why) { throw Error(code, why); }

}  // namespace ckpt::torch

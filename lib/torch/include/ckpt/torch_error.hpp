// SPDX-License-Identifier: Apache-2.0
/// How libckpt-torch says what went wrong.
#pragma once

#include <ckpt/ckpt.h>

#include <stdexcept>
#include <string>
#include <utility>

#define CKPT_TORCH_API __attribute__((visibility("default")))

namespace ckpt::torch {

/// Whatever fails in this library throws it; what LibTorch itself refuses, a copy between devices say, comes as its own
/// c10::Error. The code is chosen by what the caller can do; see ckpt.h.
class CKPT_TORCH_API Error : public std::runtime_error {
 public:
  Error(ckpt_status code, const std::string& message, std::string hint = {})
      : std::runtime_error(message), code_(code), hint_(std::move(hint)) {}

  [[nodiscard]] ckpt_status code() const noexcept { return code_; }
  /// What can be done about it; may be empty.
  [[nodiscard]] const std::string& hint() const noexcept { return hint_; }

 private:
  ckpt_status code_;
  std::string hint_;
};

}  // namespace ckpt::torch

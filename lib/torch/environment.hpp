// SPDX-License-Identifier: Apache-2.0
// Variables of the environment that a supervisor sets.
#pragma once

#include <ckpt/torch_error.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace ckpt::torch {

/// Nothing if it isn't set, or empty.
[[nodiscard]] std::optional<std::string> environment_text(const char* name);
/// Throws Error, naming the variable, for anything but a decimal number up to `most`.
[[nodiscard]] std::optional<std::uint64_t> environment_number(const char* name, std::uint64_t most);

[[noreturn]] void refuse_variable(const char* name, const std::string& value, const std::string& why);

struct FreeJob {
  void operator()(ckpt_job* job) const { ckpt_job_free(job); }
};
using JobPtr = std::unique_ptr<ckpt_job, FreeJob>;

/// This rank's line to its supervisor: NOTIFY_SOCKET, CKPT_CONTROL and LOCAL_RANK. Without them it does nothing.
[[nodiscard]] JobPtr open_job();
/// Seconds between signs of life: a third of the time after which the supervisor would act, at most one.
[[nodiscard]] double alive_seconds();

}  // namespace ckpt::torch

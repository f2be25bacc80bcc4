// SPDX-License-Identifier: Apache-2.0
#include "torch/environment.hpp"

#include "torch/checked.hpp"

#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace ckpt::torch {

std::optional<std::string> environment_text(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

std::optional<std::uint64_t> environment_number(const char* name, std::uint64_t most) {
  const std::optional<std::string> text = environment_text(name);
  if (!text) return std::nullopt;
  std::uint64_t number = 0;
  const char* const end = text->data() + text->size();
  const auto [at, error] = std::from_chars(text->data(), end, number);
  if (error != std::errc() || at != end || number > most)
    refuse_variable(name, *text, "which is no number up to " + std::to_string(most));
  return number;
}

void refuse_variable(const char* name, const std::string& value, const std::string& why) {
  refuse(CKPT_INVALID, std::string(name) + " is '" + value + "', " + why);
}

JobPtr open_job() {
  const auto notify_socket = environment_text("NOTIFY_SOCKET");
  const auto control = environment_text("CKPT_CONTROL");
  // One after the other, so that a failure names the variable.
  const auto open = [&](const char* name, const std::optional<std::string>& value, const ckpt_job_options& options) {
    ckpt_job* job = nullptr;
    const int status = ckpt_job_open(&options, &job);
    if (status != CKPT_OK) {
      const Error failure = last_error(status);
      throw Error(failure.code(), std::string(name) + " is '" + value.value_or("") + "': " + failure.what(),
                  failure.hint());
    }
    return JobPtr(job);
  };
  ckpt_job_options options;
  ckpt_job_defaults(&options);
  if (notify_socket) options.notify_socket = notify_socket->c_str();
  JobPtr job = open("NOTIFY_SOCKET", notify_socket, options);
  if (!control) return job;
  options.control = control->c_str();
  options.local_rank = static_cast<std::uint32_t>(environment_number("LOCAL_RANK", UINT32_MAX).value_or(0));
  return open("CKPT_CONTROL", control, options);
}

double alive_seconds() {
  constexpr double at_most = 1;
  const auto process = environment_number("WATCHDOG_PID", INT32_MAX);
  const auto microseconds = environment_number("WATCHDOG_USEC", UINT64_MAX / 2);
  if (!microseconds || (process && *process != static_cast<std::uint64_t>(::getpid()))) return at_most;
  return std::min(at_most, static_cast<double>(*microseconds) / 3e6);
}

}  // namespace ckpt::torch

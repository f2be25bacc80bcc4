// SPDX-License-Identifier: Apache-2.0
#include <ckpt/torch_job.hpp>

#include "torch/environment.hpp"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>

namespace ckpt::torch {
namespace {

std::uint32_t small_number(const char* name, std::uint32_t otherwise) {
  return static_cast<std::uint32_t>(environment_number(name, UINT32_MAX).value_or(otherwise));
}

/// Of STORE@STEP.
std::uint64_t step_of(const std::string& address) {
  constexpr std::size_t most_digits = 10;
  const std::size_t at = address.rfind('@');
  const std::string digits = at == std::string::npos || at == 0 ? "" : address.substr(at + 1);
  if (digits.empty() || digits.size() > most_digits || digits.find_first_not_of("0123456789") != std::string::npos)
    refuse_variable("CKPT_RESUME", address, "which is no STORE@STEP");
  return std::stoull(digits);
}

std::optional<double> seconds(const char* name) {
  const std::optional<std::string> text = environment_text(name);
  if (!text) return std::nullopt;
  double value = 0;
  const char* const end = text->data() + text->size();
  const auto [at, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || at != end || !std::isfinite(value) || value < 0)
    refuse_variable(name, *text, "which is no time in seconds");
  return value;
}

}  // namespace

Job Job::from_environment() {
  Job job;
  job.store = environment_text("CKPT_STORE").value_or("");
  job.rank = small_number("RANK", 0);
  job.world_size = small_number("WORLD_SIZE", 1);
  job.local_rank = small_number("LOCAL_RANK", 0);
  job.local_world_size = small_number("LOCAL_WORLD_SIZE", 1);
  job.attempt = environment_number("CKPT_ATTEMPT", UINT64_MAX - 1);
  job.resume = environment_text("CKPT_RESUME").value_or("");
  if (!job.resume.empty()) {
    job.resume_step = step_of(job.resume);
    job.resumed_from = *job.resume_step;
  } else if (std::getenv("CKPT_RESUME") != nullptr) {
    job.resumed_from = 0;
  }
  job.interval = seconds("CKPT_INTERVAL");
  return job;
}

SaverOptions Job::saver_options() const {
  SaverOptions options;
  options.store = store;
  options.rank = rank;
  options.world_size = world_size;
  options.local_world_size = local_world_size;
  if (attempt) options.attempt = *attempt;
  options.resumed_from = resumed_from;
  return options;
}

}  // namespace ckpt::torch

// SPDX-License-Identifier: Apache-2.0
#include "training.hpp"

#include "adam_w.hpp"
#include "pipeline.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <dlfcn.h>
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>

namespace trainer {
namespace {

/// Sums depend on how many threads they're dealt out to, so that's always one. OpenBLAS has a pool of its own.
void use_one_thread() {
  at::set_num_threads(1);
  if (void* const found = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"); found != nullptr)
    reinterpret_cast<void (*)(int)>(found)(1);
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " isn't set; start this with ckpt-run");
  return value;
}

Place place_of(const Options& options, const ckpt::torch::Job& job) {
  const Place place = Place::of(job.rank, job.world_size, options.tp, options.pp);
  if (place.dp > options.batch) {
    throw std::runtime_error("--batch=" + std::to_string(options.batch) + " can't be split over " +
                             std::to_string(place.dp) + " ranks");
  }
  return place;
}

Groups connect(const Place& place, const ckpt::torch::Job& job) {
  if (job.world_size == 1) return {};
  const std::string port = variable("MASTER_PORT");
  return Groups::connect(place, job.rank, job.world_size, variable("MASTER_ADDR"),
                         static_cast<std::uint16_t>(std::stoul(port)));
}

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string text_of(double loss) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", loss);
  return text;
}

}  // namespace

Training::Training(const Options& options, const ckpt::torch::Job& job)
    : options_(options),
      job_(job),
      place_(place_of(options, job)),
      text_(options.text, options.context + 1, options.seed),
      groups_(connect(place_, job)),
      parameters_(options_, place_),
      model_(options_, place_, parameters_, groups_.tensor) {
  use_one_thread();
  if (job_.resume_step) {
    const std::string store = job_.resume.substr(0, job_.resume.rfind('@'));
    const ckpt::torch::Loader loader(store, std::to_string(*job_.resume_step));
    loader.load_into(state_to_load(parameters_, progress_));
  }
}

void Training::step() {
  const std::int64_t number = progress_.step + 1;
  // All samples of a step are the same however many ranks there are. If they can't be dealt out evenly, some ranks have
  // one more; so each loss is a part of the batch's, and not a mean of its own.
  const std::int64_t first = options_.batch * place_.data / place_.dp;
  const std::int64_t last = options_.batch * (place_.data + 1) / place_.dp;
  const double scale = static_cast<double>(place_.dp) / static_cast<double>(options_.batch * options_.context);
  const at::Tensor& bucket = parameters_.bucket();
  bucket.zero_();
  const at::Tensor own_loss =
      forward_and_backward(model_, options_, place_, groups_.model, text_.samples(number, first, last), scale);
  bucket[-1].copy_(own_loss);
  if (number == options_.nan_at) bucket[-1].fill_(std::numeric_limits<double>::quiet_NaN());
  groups_.data.sum(bucket);
  bucket.div_(static_cast<double>(place_.dp));

  // Clipped after the reduction, by the norm of the whole gradient: before it, each rank would clip by the norm of its
  // own samples' gradient, and what is summed then is the gradient of nothing, and another one for each world size.
  const at::Tensor totals = at::zeros({2}, at::TensorOptions().dtype(at::kDouble));
  for (const Parameter& p : parameters_.all()) {
    if (p.is_part() || place_.tensor == 0) totals[0] += p.value.grad().square().sum(at::kDouble);
  }
  if (place_.is_last_stage() && place_.tensor == 0) totals[1].copy_(bucket[-1]);
  groups_.model.sum(totals);
  const double norm = std::sqrt(totals[0].item<double>());
  const double loss = totals[1].item<double>();
  if (!std::isfinite(loss) || !std::isfinite(norm))
    throw NotFinite("step " + std::to_string(number) + ": the loss or its gradient isn't finite");

  const double largest = 1.0;
  adam_w(parameters_, number, options_.lr, std::min(1.0, largest / (norm + 1e-6)));
  progress_ = {number, loss};
}

void Training::run() {
  const bool talks = job_.rank == 0;
  if (talks) {
    std::printf("%" PRId64 " ranks: dp %" PRId64 ", tp %" PRId64 ", pp %" PRId64 "; %zu bytes of text; %s %s\n",
                static_cast<std::int64_t>(job_.world_size), place_.dp, place_.tp, place_.pp, text_.size(),
                job_.resume.empty() ? "begins from" : "goes on from",
                job_.resume.empty() ? "zero" : job_.resume.c_str());
  }
  std::optional<ckpt::torch::Saver> saver;
  if (!job_.store.empty()) {
    ckpt::torch::SaverOptions options = job_.saver_options();
    options.jobs = 1;  // the other cores have ranks of their own
    saver.emplace(options);
  }
  const ckpt::torch::State state = state_to_save(parameters_, progress_, place_);
  double since = seconds();
  std::int64_t steps_since = 0;
  ckpt_request request = CKPT_REQUEST_NONE;
  while (progress_.step < options_.steps && request != CKPT_REQUEST_STOP) {
    step();
    const auto number = static_cast<std::uint64_t>(progress_.step);
    if (++steps_since; talks && progress_.step % 10 == 0) {
      const double now = seconds();
      std::printf("step %" PRIu64 " loss %s, %.1f ms a step\n", number, text_of(progress_.loss).c_str(),
                  (now - since) * 1e3 / static_cast<double>(steps_since));
      since = now;
      steps_since = 0;
    }
    if (!saver) continue;
    request = saver->step(number, "loss " + text_of(progress_.loss));
    const bool is_due = options_.save_every != 0 && progress_.step % options_.save_every == 0;
    if (is_due || request != CKPT_REQUEST_NONE || progress_.step == options_.steps) saver->save(number, state);
  }
  if (saver) saver->close();
  report(progress_.step < options_.steps ? "stopped" : "final");
}

void Training::report(const char* how) const {
  const std::uint64_t digest = digest_of(options_, parameters_, place_, groups_.model);
  if (job_.rank == 0 || options_.digest) {
    std::printf("%s step %" PRId64 " loss %s digest %016" PRIx64 "\n", how, progress_.step,
                text_of(progress_.loss).c_str(), digest);
  }
}

}  // namespace trainer

// SPDX-License-Identifier: Apache-2.0
// The saver of the C interface.
#include "capi/handles.hpp"

#include <ckpt/ckpt.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>

namespace ckpt::capi {
namespace {

Encode encode_of(std::string_view name) {
  if (name == "raw") return Encode::raw;
  if (name == "fast") return Encode::fast;
  if (name == "best") return Encode::best;
  refuse("'" + std::string(name) + "' is no encoding: raw, fast or best");
}

capture::Way way_of(ckpt_capture capture) {
  switch (capture) {
    case CKPT_CAPTURE_AUTO: return capture::Way::automatic;
    case CKPT_CAPTURE_COPY: return capture::Way::copy;
    case CKPT_CAPTURE_PROTECT: return capture::Way::protect;
  }
  refuse("no such way to capture memory");
}

SaverOptions options_of(const ckpt_saver_options& given) {
  SaverOptions options;
  SaveOptions& save = options.save;
  save.store = &required(given.store, "the store");
  if (save.store.empty()) refuse("the store has an empty name");
  save.rank = given.rank;
  save.world_size = given.world_size;
  if (given.attempt != CKPT_UNSET) save.attempt = given.attempt;
  if (given.resumed_from != CKPT_UNSET) save.resumed_from = given.resumed_from;
  if (given.encode != nullptr) save.encode = encode_of(given.encode);
  if (given.use_base == 0) save.base = BaseChoice::none;
  if (given.use_base != 0 && given.base_step != CKPT_UNSET) {
    save.base = BaseChoice::step;
    save.base_step = given.base_step;
  }
  save.check = given.check != 0;
  // One core is the trainer's.
  save.jobs = given.jobs != 0 ? given.jobs : std::max(2U, std::thread::hardware_concurrency()) - 1;
  if (given.fixed_time != INT64_MIN) save.fixed_time = given.fixed_time;
  options.freezer.way = way_of(given.capture);
  options.freezer.ready = given.memory != 0;
  options.freezer.memory =
      given.memory != 0 ? given.memory : capture::default_memory(std::max(1U, given.local_world_size));
  if (!(given.alive_seconds >= 0)) refuse("there's no such time between signs of life");
  options.alive_seconds = given.alive_seconds;
  if (given.job != nullptr) {
    given.job->process.require();
    options.link = given.job->link;
  }
  return options;
}

}  // namespace
}  // namespace ckpt::capi

using namespace ckpt::capi;

void ckpt_saver_defaults(ckpt_saver_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
  options->world_size = 1;
  options->attempt = CKPT_UNSET;
  options->resumed_from = CKPT_UNSET;
  options->base_step = CKPT_UNSET;
  options->use_base = 1;
  options->check = 1;
  options->local_world_size = 1;
  options->fixed_time = INT64_MIN;
  options->alive_seconds = 1;
}

int ckpt_saver_open(const ckpt_saver_options* options, ckpt_saver** saver) {
  return guarded([&] {
    required(saver, "the place for the saver") = nullptr;
    ckpt_saver_options known;
    ckpt_saver_defaults(&known);
    const std::size_t size = required(options, "the options").struct_size;
    if (size < offsetof(ckpt_saver_options, reserved)) refuse("the options weren't set by ckpt_saver_defaults()");
    std::memcpy(&known, options, std::min(size, sizeof known));
    *saver = new ckpt_saver{.saver = std::make_shared<Saver>(options_of(known)), .process = {}};
  });
}

int ckpt_saver_close(ckpt_saver* saver, double timeout) {
  Failure first;
  const int status = guarded([&] {
    required(saver, "the saver").process.require();
    const Deadline deadline = deadline_after(timeout);
    for (const auto& save : saver->saver->saves()) {
      Failure failure = save->untold_failure().value_or(Failure{});
      if (failure.status == CKPT_OK) failure = save->wait(deadline, false);
      if (failure.status == CKPT_TIMED_OUT) {
        first = failure;
        return;
      }
      if (first.status == CKPT_OK) first = failure;
    }
    saver->saver->close();
    delete saver;
  });
  return status != CKPT_OK ? status : tell(first);
}

size_t ckpt_saver_pending(const ckpt_saver* saver) {
  return saver == nullptr || !saver->process.is_here() ? 0 : saver->saver->pending();
}

int ckpt_can_protect(void) {
  const std::string why = ckpt::capture::why_not_protect();
  if (why.empty()) return 1;
  (void)tell({.status = CKPT_UNSUPPORTED, .message = why, .hint = {}});
  return 0;
}

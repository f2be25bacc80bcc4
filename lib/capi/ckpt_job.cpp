// SPDX-License-Identifier: Apache-2.0
// A rank's line to ckpt-run, of the C interface.
#include "capi/handles.hpp"

#include <ckpt/ckpt.h>
#include <ckpt/address.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>

namespace ckpt::capi {
namespace {

std::string text_or_nothing(const char* text) { return text == nullptr ? std::string() : std::string(text); }

run::RankLink& link_of(ckpt_job* job) {
  required(job, "the job").process.require();
  return *job->link;
}

ckpt_request request_of(run::Request request) {
  switch (request) {
    case run::Request::none: return CKPT_REQUEST_NONE;
    case run::Request::save: return CKPT_REQUEST_SAVE;
    case run::Request::stop: return CKPT_REQUEST_STOP;
  }
  throw Error(Errc::unsupported, "this ckpt-run asks for something that isn't known here");
}

}  // namespace
}  // namespace ckpt::capi

using namespace ckpt::capi;

void ckpt_job_defaults(ckpt_job_options* options) {
  if (options == nullptr) return;
  *options = {};
  options->struct_size = sizeof *options;
}

int ckpt_job_open(const ckpt_job_options* options, ckpt_job** job) {
  return guarded([&] {
    required(job, "the place for the job") = nullptr;
    ckpt_job_options known;
    ckpt_job_defaults(&known);
    const std::size_t size = required(options, "the options").struct_size;
    if (size < offsetof(ckpt_job_options, reserved)) refuse("the options weren't set by ckpt_job_defaults()");
    std::memcpy(&known, options, std::min(size, sizeof known));
    *job = new ckpt_job{.link = std::make_shared<ckpt::run::RankLink>(text_or_nothing(known.notify_socket),
                                                                      text_or_nothing(known.control), known.local_rank),
                        .process = {}};
  });
}

int ckpt_job_step(ckpt_job* job, uint64_t step, const char* status, enum ckpt_request* request) {
  return guarded([&] {
    if (request != nullptr) *request = CKPT_REQUEST_NONE;
    if (step > ckpt::max_step) refuse("the step is above " + std::to_string(ckpt::max_step));
    const ckpt_request asked = request_of(link_of(job).step(step, text_or_nothing(status)));
    if (request != nullptr) *request = asked;
  });
}

int ckpt_job_alive(ckpt_job* job) {
  return guarded([&] { link_of(job).alive(); });
}

int ckpt_job_extend(ckpt_job* job, double seconds) {
  return guarded([&] {
    constexpr double longest = 1e9;
    if (!(seconds >= 0 && seconds <= longest)) refuse("a time-out is extended by 0 to 1e9 seconds");
    link_of(job).extend(std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::duration<double>(seconds)));
  });
}

void ckpt_job_free(ckpt_job* job) { delete job; }

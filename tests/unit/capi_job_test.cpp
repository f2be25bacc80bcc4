// SPDX-License-Identifier: Apache-2.0
// A rank's line to its supervisor through the C interface, and the signs of life of a saver.
#include <doctest/doctest.h>

#include "notify_socket.hpp"
#include "run/control_page.hpp"
#include "scratch.hpp"

#include <ckpt/ckpt.h>

#include <sys/wait.h>
#include <unistd.h>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

using unit_test::NotifySocket;

namespace {

struct FreeJob {
  void operator()(ckpt_job* job) const { ckpt_job_free(job); }
};
using JobPtr = std::unique_ptr<ckpt_job, FreeJob>;

#define OK(call)                                                      \
  do {                                                                \
    const int status_ = (call);                                       \
    REQUIRE_MESSAGE(status_ == CKPT_OK, std::string(ckpt_message())); \
  } while (false)

ckpt_job_options options_for(const char* notify_socket, const char* control, std::uint32_t local_rank = 0) {
  ckpt_job_options options;
  ckpt_job_defaults(&options);
  options.notify_socket = notify_socket;
  options.control = control;
  options.local_rank = local_rank;
  return options;
}

JobPtr open_job(const ckpt_job_options& options) {
  ckpt_job* job = nullptr;
  OK(ckpt_job_open(&options, &job));
  return JobPtr(job);
}

int status_of(const ckpt_job_options& options) {
  ckpt_job* job = nullptr;
  const int status = ckpt_job_open(&options, &job);
  CHECK((job == nullptr) == (status != CKPT_OK));
  ckpt_job_free(job);
  return status;
}

}  // namespace

TEST_CASE("capi job: a step says how it goes, and tells what is asked") {
  const NotifySocket socket;
  ckpt::run::ControlPage page(2);
  const JobPtr job = open_job(options_for(socket.name().c_str(), page.path().c_str(), 1));
  enum ckpt_request request = CKPT_REQUEST_STOP;
  OK(ckpt_job_step(job.get(), 1, nullptr, &request));
  CHECK(request == CKPT_REQUEST_NONE);
  CHECK(socket.next() == "WATCHDOG=1\nSTATUS=step 1");
  REQUIRE(page.propose(ckpt::run::Request::save, 2));
  page.agree();
  OK(ckpt_job_step(job.get(), 2, "loss 1.93", &request));
  CHECK(request == CKPT_REQUEST_SAVE);
  CHECK(socket.next() == "WATCHDOG=1\nSTATUS=step 2 loss 1.93");
  CHECK(page.is_answered());
  REQUIRE(page.propose(ckpt::run::Request::stop, 3));
  page.agree();
  OK(ckpt_job_step(job.get(), 3, "", &request));
  CHECK(request == CKPT_REQUEST_STOP);
  OK(ckpt_job_step(job.get(), 4, nullptr, nullptr));
  CHECK(page.last_step(1) == 4);
}

TEST_CASE("capi job: signs of life and extensions") {
  const NotifySocket socket;
  const JobPtr job = open_job(options_for(socket.name().c_str(), nullptr));
  OK(ckpt_job_alive(job.get()));
  OK(ckpt_job_extend(job.get(), 1.5));
  CHECK(socket.next() == "WATCHDOG=1");
  CHECK(socket.next() == "EXTEND_TIMEOUT_USEC=1500000");
  for (const double wrong : {-1.0, 2e9, std::nan("")}) CHECK(ckpt_job_extend(job.get(), wrong) == CKPT_INVALID);
}

TEST_CASE("capi job: where nobody supervises, all calls do nothing") {
  for (const char* none : {static_cast<const char*>(nullptr), ""}) {
    const JobPtr job = open_job(options_for(none, none, 5));
    enum ckpt_request request = CKPT_REQUEST_STOP;
    OK(ckpt_job_step(job.get(), 1, "x", &request));
    CHECK(request == CKPT_REQUEST_NONE);
    OK(ckpt_job_alive(job.get()));
    OK(ckpt_job_extend(job.get(), 1));
  }
}

TEST_CASE("capi job: wrong calls are refused, and say why") {
  const unit_test::Scratch scratch;
  const ckpt::run::ControlPage page(1);
  CHECK(status_of(options_for("relative", nullptr)) == CKPT_INVALID);
  CHECK(std::string(ckpt_message()).find("'relative'") != std::string::npos);
  CHECK(status_of(options_for(nullptr, page.path().c_str(), 1)) == CKPT_INVALID);
  CHECK(status_of(options_for(nullptr, (scratch / "none").c_str())) == CKPT_NOT_FOUND);
  CHECK(status_of(options_for(nullptr, "/dev/null")) == CKPT_MALFORMED);
  CHECK(status_of({}) == CKPT_INVALID);
  ckpt_job* job = nullptr;
  CHECK(ckpt_job_open(nullptr, &job) == CKPT_INVALID);
  const ckpt_job_options options = options_for(nullptr, nullptr);
  CHECK(ckpt_job_open(&options, nullptr) == CKPT_INVALID);
  CHECK(ckpt_job_step(nullptr, 1, nullptr, nullptr) == CKPT_INVALID);
  CHECK(ckpt_job_alive(nullptr) == CKPT_INVALID);
  CHECK(ckpt_job_extend(nullptr, 1) == CKPT_INVALID);
  ckpt_job_free(nullptr);
  const JobPtr open = open_job(options);
  CHECK(ckpt_job_step(open.get(), UINT64_MAX, nullptr, nullptr) == CKPT_INVALID);
}

TEST_CASE("capi job: a fork's child is told that it has none") {
  const NotifySocket socket;
  const JobPtr job = open_job(options_for(socket.name().c_str(), nullptr));
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_refused = ckpt_job_alive(job.get()) == CKPT_INVALID &&
                            ckpt_job_step(job.get(), 1, nullptr, nullptr) == CKPT_INVALID &&
                            ckpt_job_extend(job.get(), 1) == CKPT_INVALID;
    ::_exit(is_refused ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(!socket.next(0));
}

TEST_CASE("capi job: a saver gives signs of life while bytes move, and none when they don't") {
  const unit_test::Scratch scratch;
  const NotifySocket socket;
  JobPtr job = open_job(options_for(socket.name().c_str(), nullptr));
  const std::string store = scratch / "a";
  ckpt_saver_options options;
  ckpt_saver_defaults(&options);
  CHECK(options.alive_seconds == 1);
  options.store = store.c_str();
  options.world_size = 2;  // the other never comes
  options.job = job.get();
  options.alive_seconds = -1;
  ckpt_saver* saver = nullptr;
  CHECK(ckpt_saver_open(&options, &saver) == CKPT_INVALID);
  for (const double seconds : {0.0, 1000.0}) {
    options.alive_seconds = seconds;
    OK(ckpt_saver_open(&options, &saver));
    if (seconds > 0) job.reset();  // the saver has its own
    CHECK(!socket.next(0));
    const std::vector<float> values(std::size_t{3} << 20U, 1.5F);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      ckpt_save* save = nullptr;
      OK(ckpt_save_new(saver, step, &save));
      std::uint64_t range = 0;
      OK(ckpt_save_memory(save, values.data(), values.size() * sizeof(float), CKPT_KEEP_BEST, &range));
      OK(ckpt_save_archive(save, "a.pt", "a"));
      OK(ckpt_save_record_of(save, "data/0", range, values.size() * sizeof(float)));
      OK(ckpt_save_freeze(save));
      CHECK(!socket.next(20));
      OK(ckpt_save_start(save));
      OK(ckpt_save_wait(save, -1, 0));
      // One at once, then none for a thousand seconds; or one for each piece.
      const int count = socket.drain();
      if (seconds > 0) CHECK(count == (step == 1 ? 1 : 0));
      if (seconds == 0) CHECK(count > 1);
      CHECK(!socket.next(20));
      CHECK(ckpt_save_wait(save, 0.05, 1) == CKPT_TIMED_OUT);
      CHECK(!socket.next(0));
      ckpt_save_free(save);
    }
    OK(ckpt_saver_close(saver, -1));
  }
}

// SPDX-License-Identifier: Apache-2.0
// Under a supervisor: what its variables say, and a saver that's its rank's line to it. The supervisor is made here: a
// socket, and the control page's words.
#include "notify_socket.hpp"
#include "torch_support.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

using namespace torch_test;
using ckpt::torch::Job;
using unit_test::NotifySocket;

namespace {

/// Variables that are there as long as this is, and no others that a supervisor sets.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<std::string, std::string>>& variables) {
    clear();
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() { clear(); }

 private:
  static void clear() {
    for (const char* name :
         {"CKPT_STORE", "CKPT_ATTEMPT", "CKPT_RESUME", "CKPT_INTERVAL", "CKPT_CONTROL", "NOTIFY_SOCKET",
          "WATCHDOG_USEC", "WATCHDOG_PID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}) {
      ::unsetenv(name);
    }
  }
};

/// A control page for two ranks, asking for one thing from a step on.
void write_page(const std::string& path, std::uint64_t request, std::uint64_t step) {
  std::array<std::uint64_t, 24> words{};
  std::memcpy(words.data(), "ckptrun1", 8);
  words[1] = 2;
  words[2] = request;
  words[3] = words[4] = step + 1;
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(words.data()), sizeof words);
}

std::vector<std::string> checkpoints(const std::string& store) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(store)) {
    if (entry.path().filename().string()[0] == '0') names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("job: without a supervisor it's one rank, and nothing is asked") {
  const unit_test::Scratch scratch;
  const Environment environment({});
  const Job job = Job::from_environment();
  CHECK(job.store.empty());
  CHECK(job.rank == 0);
  CHECK(job.world_size == 1);
  CHECK(!job.attempt);
  CHECK(!job.resume_step);
  CHECK(!job.interval);
  CHECK(job.saver_options().resumed_from == CKPT_UNSET);
  CHECK(job.saver_options().attempt == CKPT_UNSET);
  Saver saver(options_for(scratch / "a"));
  CHECK(saver.step(1) == CKPT_REQUEST_NONE);
  CHECK(saver.step(2, "loss 1") == CKPT_REQUEST_NONE);
  saver.extend_timeout(5);
}

TEST_CASE("job: the environment says where to save, as whom, and what to go on from") {
  const Environment environment({{"CKPT_STORE", "/runs/a"},
                                 {"RANK", "5"},
                                 {"WORLD_SIZE", "8"},
                                 {"LOCAL_RANK", "1"},
                                 {"LOCAL_WORLD_SIZE", "4"},
                                 {"CKPT_ATTEMPT", "3"},
                                 {"CKPT_RESUME", "/runs/a@1200"},
                                 {"CKPT_INTERVAL", "90.5"}});
  const Job job = Job::from_environment();
  CHECK(job.store == "/runs/a");
  CHECK(job.rank == 5);
  CHECK(job.world_size == 8);
  CHECK(job.local_rank == 1);
  CHECK(job.local_world_size == 4);
  CHECK(job.attempt == 3U);
  CHECK(job.resume == "/runs/a@1200");
  CHECK(job.resume_step == 1200U);
  CHECK(job.interval == 90.5);
  const SaverOptions options = job.saver_options();
  CHECK(options.store == "/runs/a");
  CHECK(options.rank == 5);
  CHECK(options.world_size == 8);
  CHECK(options.local_world_size == 4);
  CHECK(options.attempt == 3);
  CHECK(options.resumed_from == 1200);
}

TEST_CASE("job: a life that begins from zero retires what earlier ones have left") {
  const unit_test::Scratch scratch;
  State state;
  for (const char* attempt : {"1", "2"}) {
    state.add(attempt, at::ones({3}));
    const Environment environment({{"CKPT_STORE", scratch / "a"}, {"CKPT_ATTEMPT", attempt}, {"CKPT_RESUME", ""}});
    const Job job = Job::from_environment();
    CHECK(!job.resume_step);
    Saver saver(job.saver_options());
    for (const std::uint64_t step : {10U, 20U}) {
      if (*attempt == '1' || step == 10) saver.save(step, state).wait();
    }
  }
  CHECK(checkpoints(scratch / "a") == std::vector<std::string>{"0000000010"});
}

TEST_CASE("job: a malformed variable is named") {
  const unit_test::Scratch scratch;
  const std::string long_name = "@" + std::string(200, 'x');
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"RANK", "x"},
                                                                                    {"RANK", "-1"},
                                                                                    {"WORLD_SIZE", "4294967296"},
                                                                                    {"LOCAL_RANK", "1 "},
                                                                                    {"CKPT_ATTEMPT", "one"},
                                                                                    {"CKPT_RESUME", "runs"},
                                                                                    {"CKPT_RESUME", "@5"},
                                                                                    {"CKPT_RESUME", "a@latest"},
                                                                                    {"CKPT_INTERVAL", "soon"},
                                                                                    {"CKPT_INTERVAL", "-1"}}) {
    const Environment environment({{name, value}});
    CAPTURE(value);
    const Error failure = failure_of([] { (void)Job::from_environment(); });
    CHECK(failure.code() == CKPT_INVALID);
    CHECK(mentions(failure, name));
  }
  for (const auto& [name, value] : std::vector<std::pair<std::string, std::string>>{{"NOTIFY_SOCKET", "relative"},
                                                                                    {"NOTIFY_SOCKET", long_name},
                                                                                    {"CKPT_CONTROL", scratch / "none"},
                                                                                    {"CKPT_CONTROL", "/dev/null"},
                                                                                    {"WATCHDOG_USEC", "x"}}) {
    const Environment environment({{name, value}});
    CAPTURE(value);
    const Error failure = failure_of([&] { const Saver saver(options_for(scratch / "a")); });
    CHECK(failure.code() != CKPT_OK);
    CHECK(mentions(failure, name));
  }
}

TEST_CASE("job: steps go to the supervisor, and come back with what it asks for") {
  const unit_test::Scratch scratch;
  const NotifySocket socket;
  write_page(scratch / "page", 1, 2);
  const Environment environment(
      {{"NOTIFY_SOCKET", socket.name()}, {"CKPT_CONTROL", scratch / "page"}, {"LOCAL_RANK", "1"}});
  Saver saver(options_for(scratch / "a"));
  CHECK(saver.step(1, "loss 1.93") == CKPT_REQUEST_NONE);
  CHECK(saver.step(2) == CKPT_REQUEST_SAVE);
  CHECK(saver.step(3) == CKPT_REQUEST_NONE);
  saver.extend_timeout(2);
  CHECK(socket.next() == "WATCHDOG=1\nSTATUS=step 1 loss 1.93");
  CHECK(socket.next() == "WATCHDOG=1\nSTATUS=step 2");
  CHECK(socket.next() == "WATCHDOG=1\nSTATUS=step 3");
  CHECK(socket.next() == "EXTEND_TIMEOUT_USEC=2000000");
  CHECK(failure_of([&] { saver.extend_timeout(-1); }).code() == CKPT_INVALID);
}

TEST_CASE("job: a save gives signs of life while its bytes move, and not afterwards") {
  const unit_test::Scratch scratch;
  const NotifySocket socket;
  const Environment environment({{"NOTIFY_SOCKET", socket.name()}, {"WATCHDOG_USEC", "30"}});
  SaverOptions options = options_for(scratch / "a");
  options.world_size = 2;  // the other never comes
  Saver saver(options);
  State state;
  state.add("a", at::rand({1 << 22}));
  const SaveHandle handle = saver.save(1, state);
  saver.wait();
  int count = 0;
  while (const auto text = socket.next(0)) {
    CHECK(*text == "WATCHDOG=1");
    ++count;
  }
  CHECK(count > 1);
  CHECK(failure_of([&] { handle.wait(0.1); }).code() == CKPT_TIMED_OUT);
  CHECK(!socket.next(0));
}

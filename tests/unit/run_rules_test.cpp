// SPDX-License-Identifier: Apache-2.0
// What ckpt-run decides without looking at anything: notices, retries, slots, devices, environments, logs.
#include "run/notice.hpp"
#include "run/rank_environment.hpp"
#include "run/rank_log.hpp"
#include "run/retries.hpp"
#include "run/slots.hpp"

#include "scratch.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

namespace {

using ckpt::run::parse_notice;
using ckpt::run::parse_status;
using ckpt::run::Retries;
using ckpt::run::Slots;
using ckpt::run::visible_devices;
using Verdict = Retries::Verdict;

TEST_CASE("a notice is read line by line, and what isn't known is passed over") {
  const auto notice =
      parse_notice("READY=1\nWATCHDOG=1\nSTATUS=step 12 loss 1.5\nX_MINE=3\nEXTEND_TIMEOUT_USEC=1500000");
  CHECK(notice.alive);
  CHECK(!notice.gives_up);
  CHECK(notice.status == "step 12 loss 1.5");
  CHECK(notice.extend == std::chrono::milliseconds(1500));
  CHECK(parse_notice("WATCHDOG=trigger").gives_up);
  CHECK(!parse_notice("WATCHDOG=0").alive);
  CHECK(!parse_notice("").alive);
}

TEST_CASE("a notice that is malformed does no harm") {
  for (const char* text : {"WATCHDOG", "=", "=1", "\n\n", "EXTEND_TIMEOUT_USEC=", "EXTEND_TIMEOUT_USEC=-1",
                           "EXTEND_TIMEOUT_USEC=1e9", "EXTEND_TIMEOUT_USEC=99999999999999999999999"}) {
    const auto notice = parse_notice(text);
    CHECK(!notice.alive);
    CHECK(!notice.extend);
  }
  CHECK(parse_notice("EXTEND_TIMEOUT_USEC=18446744073709551615").extend < std::chrono::hours(24 * 31));
  CHECK(parse_notice("STATUS=a\tb\x1b[31mc").status == "a b [31mc");
  CHECK(parse_notice("STATUS=" + std::string(5000, 'x')).status->size() <= 256);
}

TEST_CASE("step and loss are found in a status however they're set off") {
  for (const char* text : {"step 1200 loss 1.93", "step=1200, loss=1.93", "epoch 3 step: 1200 loss: 1.93"}) {
    CHECK(parse_status(text).step == 1200);
    CHECK(parse_status(text).loss == doctest::Approx(1.93));
  }
  CHECK(!parse_status("step").step);
  CHECK(!parse_status("step -3 loss none").step);
  CHECK(!parse_status("step -3 loss none").loss);
  CHECK(!parse_status("").step);
}

TEST_CASE("a job that comes further may fail as often as it likes") {
  Retries retries({});
  for (std::uint64_t step = 0; step < 1000; ++step) {
    CHECK(retries.count(step, step + 1) == Verdict::again);
    CHECK(retries.pause().count() == 0);
  }
  CHECK(retries.restarts() == 1000);
}

TEST_CASE("deaths from one checkpoint poison it, two of them, and then the job is given up") {
  Retries retries({.per_step = 3});
  std::vector<Verdict> verdicts;
  for (int i = 0; i < 3; ++i) verdicts.push_back(retries.count(300, 300));
  for (int i = 0; i < 3; ++i) verdicts.push_back(retries.count(200, 200));
  for (int i = 0; i < 3; ++i) verdicts.push_back(retries.count(100, 100));
  using enum Retries::Verdict;
  CHECK(verdicts == std::vector{again, again, poisoned, again, again, poisoned, again, again, no_progress});
}

TEST_CASE("a checkpoint that was given up and is made again is no progress") {
  // Bad data between 300 and 400: 300 is made again from 200, each time, and never passed.
  Retries retries({.per_step = 2});
  std::optional<std::uint64_t> resumed = 300;
  int failures = 0;
  for (; failures < 100; ++failures) {
    const auto verdict = retries.count(resumed, 300);
    if (verdict == Verdict::no_progress) break;
    resumed = verdict == Verdict::poisoned ? 200 : 300;
  }
  CHECK(failures < 10);
}

TEST_CASE("without any checkpoint the job is given up after as many tries") {
  Retries retries({.per_step = 2});
  CHECK(retries.count(std::nullopt, std::nullopt) == Verdict::again);
  CHECK(retries.count(std::nullopt, std::nullopt) == Verdict::no_progress);
}

TEST_CASE("restarts have a limit of their own") {
  Retries retries({.per_step = 100, .restarts = 2});
  CHECK(retries.count(1, 2) == Verdict::again);
  CHECK(retries.count(2, 3) == Verdict::again);
  CHECK(retries.count(3, 4) == Verdict::too_often);
  CHECK(retries.restarts() == 2);
}

TEST_CASE("pauses double from the second failure in vain on, and stay below a minute") {
  Retries retries({.per_step = 1000, .backoff = std::chrono::seconds(2)});
  std::vector<double> pauses;
  for (int i = 0; i < 9; ++i) {
    (void)retries.count(1, 1);
    pauses.push_back(retries.pause().count());
  }
  CHECK(pauses == std::vector<double>{0, 2, 4, 8, 16, 32, 60, 60, 60});
  (void)retries.count(1, 2);
  CHECK(retries.pause().count() == 0);
}

TEST_CASE("a slot is left out after failures in a row, if enough others are left") {
  Slots slots({.least = 2, .most = 3, .retries = 2});
  CHECK(!slots.count_failure(1));
  slots.forgive();
  CHECK(!slots.count_failure(1));
  CHECK(slots.count_failure(1));
  CHECK(slots.usable() == std::vector<std::uint32_t>{0, 2});
  CHECK(!slots.count_failure(0));
  CHECK(!slots.count_failure(0));
  CHECK(slots.usable().size() == 2);
  slots.take_back(1);
  CHECK(slots.usable().size() == 3);
}

TEST_CASE("slots are used in whole groups, and never fewer than the least") {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const std::uint32_t group = 1 + static_cast<std::uint32_t>(random() % 4);
    const std::uint32_t most = 1 + static_cast<std::uint32_t>(random() % 12);
    const std::uint32_t least = 1 + static_cast<std::uint32_t>(random() % most);
    if (most - most % group < least) continue;
    Slots slots({.least = least, .most = most, .multiple_of = group, .retries = 1});
    for (int i = 0; i < 20; ++i) {
      (void)slots.count_failure(static_cast<std::uint32_t>(random() % most));
      const auto usable = slots.usable();
      CHECK(usable.size() % group == 0);
      CHECK(usable.size() >= least);
      CHECK(std::is_sorted(usable.begin(), usable.end()));
    }
  }
}

TEST_CASE("devices of slots that aren't used are masked") {
  CHECK(visible_devices(std::nullopt, 4, {0, 2, 3}) == "0,2,3");
  CHECK(visible_devices("4,5,6,7", 4, {1, 3}) == "5,7");
  CHECK(visible_devices("GPU-a,GPU-b", 2, {1}) == "GPU-b");
  CHECK(visible_devices("0,1,2,3", 2, {1}) == "2,3");
  CHECK(!visible_devices("0,1,2", 2, {1}));
  CHECK(!visible_devices("all", 2, {1}));
}

std::optional<std::string> value_of(const std::vector<std::string>& environment, const std::string& name) {
  for (const std::string& entry : environment) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return std::nullopt;
}

TEST_CASE("what is inherited stays, unless it's the job's to say") {
  ckpt::run::JobEnvironment job{
      .inherited = {"RANK=7", "MINE=1", "OMP_NUM_THREADS=4", "CKPT_RESUME_DIR=/old", "WATCHDOG_PID=1",
                    "CUDA_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=a,b,c", "not a variable"},
      .store = "/s",
      .all_slots = 3};
  ckpt::run::Round round{.attempt = 5, .resume_step = 12, .slots = {0, 2}, .first_rank = 2, .world_size = 4};
  const auto environment = ckpt::run::rank_environment(job, round, 1, "@x");
  CHECK(value_of(environment, "RANK") == "3");
  CHECK(value_of(environment, "LOCAL_RANK") == "1");
  CHECK(value_of(environment, "MINE") == "1");
  CHECK(value_of(environment, "OMP_NUM_THREADS") == "4");
  CHECK(value_of(environment, "CKPT_RESUME") == "/s@12");
  CHECK(value_of(environment, "CUDA_VISIBLE_DEVICES") == "");
  CHECK(value_of(environment, "HIP_VISIBLE_DEVICES") == "0,2");
  CHECK(value_of(environment, "ROCR_VISIBLE_DEVICES") == "a,c");
  CHECK(!value_of(environment, "CKPT_RESUME_DIR"));
  CHECK(!value_of(environment, "WATCHDOG_PID"));
  std::set<std::string> names;
  for (const std::string& entry : environment) CHECK(names.insert(entry.substr(0, entry.find('='))).second);
}

TEST_CASE("a log keeps its newest bytes in files of a size, and its last lines at hand") {
  const unit_test::Scratch scratch;
  ckpt::run::RankLog log(scratch / "log", {.file_bytes = 100, .old_files = 2});
  for (int i = 0; i < 100; ++i) CHECK(log.write("line " + std::to_string(i) + "\n"));
  CHECK(log.last_lines(2) == std::vector<std::string>{"line 98", "line 99"});
  CHECK(log.last_lines(1000).size() <= 100);
  CHECK(log.write("unfinished"));
  CHECK(log.last_lines(1) == std::vector<std::string>{"unfinished"});
}

}  // namespace

// SPDX-License-Identifier: Apache-2.0
// Ranks are asked at the very same step, each once, whenever the supervisor proposes and however they run. Threads play
// the ranks.
#include <doctest/doctest.h>

#include "run/control_page.hpp"
#include "scratch.hpp"

#include <ckpt/error.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <fstream>
#include <functional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

using namespace ckpt;
using run::ControlPage;
using run::RankPage;
using run::Request;

namespace {

using Answer = std::pair<std::uint64_t, Request>;

/// Thousands where nobody else wants the cores; each is a dozen switches between threads.
constexpr int most_rounds = 4000;
constexpr int fewest_rounds = 30;
constexpr auto enough_time = std::chrono::milliseconds(1000);

/// Sleeping, not spinning: the other threads want the core.
void give_way() { std::this_thread::sleep_for(std::chrono::microseconds(1)); }

/// Asks, as ckpt-run does: `margin` steps ahead of the fastest. Gives the step.
std::uint64_t ask(ControlPage& page, Request request, std::uint64_t margin) {
  std::uint64_t step = page.next_step() + margin;
  while (!page.propose(request, step)) step = page.next_step() + margin;
  page.agree();
  return step;
}

/// Ranks run until they're asked to stop, each step through `pace`. What the supervisor asked and what each was told.
struct Run {
  std::vector<Answer> asked;
  std::vector<std::vector<Answer>> told;
};

Run play(std::uint32_t ranks, std::uint64_t margin, unsigned seed,
         const std::function<void(std::uint32_t, std::uint64_t)>& pace) {
  ControlPage page(ranks);
  Run run;
  run.told.resize(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RankPage own(page.path(), rank);
      Request request = Request::none;
      for (std::uint64_t step = 0; request != Request::stop; ++step) {
        pace(rank, step);
        request = own.finish(step);
        if (request != Request::none) run.told[rank].emplace_back(step, request);
      }
    });
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    while (!page.has_joined(rank)) give_way();
  }
  std::mt19937 random(seed);
  const auto begun = std::chrono::steady_clock::now();
  for (int round = 1; run.asked.empty() || run.asked.back().second != Request::stop; ++round) {
    const bool is_last =
        round == most_rounds || (round >= fewest_rounds && std::chrono::steady_clock::now() - begun > enough_time);
    const Request request = is_last ? Request::stop : Request::save;
    run.asked.emplace_back(ask(page, request, margin), request);
    while (!page.is_answered()) give_way();
    for (auto n = random() % 4; n > 0; --n) give_way();
  }
  for (std::thread& thread : threads) thread.join();
  return run;
}

}  // namespace

TEST_CASE("control page: ranks in lock-step are all asked at the same step, each once") {
  for (const std::uint64_t margin : {0U, 2U}) {
    constexpr std::uint32_t ranks = 3;
    std::barrier<> all(ranks);
    const Run run = play(ranks, margin, 1, [&](std::uint32_t, std::uint64_t) { all.arrive_and_wait(); });
    for (const auto& told : run.told) CHECK(told == run.asked);
  }
}

TEST_CASE("control page: ranks that run apart are all asked at the same step, each once") {
  for (const std::uint64_t margin : {0U, 1U}) {
    std::vector<std::mt19937> random;
    for (unsigned rank = 0; rank < 4; ++rank) random.emplace_back(rank);
    // No one is many steps ahead, or most of the time goes by with waiting for the last.
    std::array<std::atomic<std::uint64_t>, 4> steps{};
    const Run run = play(4, margin, 2, [&](std::uint32_t rank, std::uint64_t step) {
      steps[rank] = step;
      while (std::any_of(steps.begin(), steps.end(), [&](const auto& other) { return other + 5 < step; })) give_way();
      for (auto n = random[rank]() % 3; n > 0; --n) give_way();
    });
    for (const auto& told : run.told) CHECK(told == run.asked);
  }
}

TEST_CASE("control page: a rank waits at a proposed step until it's settled, and goes past one that's given up") {
  ControlPage page(1);
  RankPage rank(page.path(), 0);
  CHECK(rank.finish(4) == Request::none);
  CHECK(page.next_step() == 5);
  CHECK(page.last_step(0) == 4);
  CHECK(!page.propose(Request::save, 4));
  CHECK(page.propose(Request::save, 5));
  CHECK(!page.is_answered());
  std::atomic<bool> is_past = false;
  Request told = Request::none;
  std::thread thread([&] {
    told = rank.finish(5);
    is_past = true;
  });
  while (page.last_step(0) != 5) give_way();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  CHECK(!is_past);
  CHECK(page.propose(Request::stop, 7));
  thread.join();
  CHECK(told == Request::none);
  page.agree();
  CHECK(!page.is_answered());
  CHECK(rank.finish(6) == Request::none);
  CHECK(rank.finish(7) == Request::stop);
  CHECK(page.is_answered());
  CHECK(rank.finish(8) == Request::none);
}

TEST_CASE("control page: steps that are left out are asked at the next, and who joins later isn't asked") {
  ControlPage page(3);
  CHECK(!page.has_any_joined());
  RankPage first(page.path(), 0);
  CHECK(page.has_any_joined());
  CHECK(!page.has_joined(1));
  CHECK(!page.last_step(1));
  CHECK(first.finish(10) == Request::none);
  CHECK(ask(page, Request::save, 3) == 14);
  CHECK(first.finish(20) == Request::save);
  CHECK(page.is_answered());
  RankPage second(page.path(), 1);
  CHECK(second.finish(20) == Request::none);
}

TEST_CASE("control page: a rank may be another process") {
  ControlPage page(2);
  const std::string path = page.path();
  const pid_t child = ::fork();
  if (child == 0) {
    RankPage rank(path, 1);
    std::uint64_t step = 0;
    while (rank.finish(step) == Request::none) ++step;
    ::_exit(0);
  }
  while (!page.has_joined(1)) give_way();
  const std::uint64_t asked = ask(page, Request::stop, 1);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(page.last_step(1) == asked);
  CHECK(page.is_answered());
}

TEST_CASE("control page: what isn't one is refused, and so is a rank that isn't there") {
  const unit_test::Scratch scratch;
  const auto code_of = [](const std::string& path, std::uint32_t rank) {
    try {
      const RankPage page(path, rank);
    } catch (const Error& error) {
      return error.code();
    }
    return Errc::interrupted;
  };
  const ControlPage page(2);
  CHECK(code_of(page.path(), 2) == Errc::invalid_argument);
  CHECK(code_of(scratch / "none", 0) == Errc::not_found);
  std::ofstream(scratch / "short") << "ckptrun1";
  CHECK(code_of(scratch / "short", 0) == Errc::malformed);
  std::ofstream(scratch / "zeros") << std::string(4096, '\0');
  CHECK(code_of(scratch / "zeros", 0) == Errc::malformed);
}

TEST_CASE("a rank that has left, or takes no part in the steps, isn't waited for") {
  ControlPage page(3);
  RankPage first(page.path(), 0);
  RankPage second(page.path(), 1);
  RankPage third(page.path(), 2);
  CHECK(second.finish(0) == Request::none);
  const std::uint64_t step = ask(page, Request::save, 0);
  CHECK(step == 1);
  CHECK(first.finish(step) == Request::save);
  page.set_left(1);
  CHECK_FALSE(page.is_answered());
  CHECK(first.finish(step + 15) == Request::none);
  CHECK_FALSE(page.is_answered());
  CHECK(first.finish(step + 16) == Request::none);
  CHECK(page.is_answered());
  // It's asked with the others again as soon as it does.
  CHECK(third.finish(step + 16) == Request::none);
  CHECK(ask(page, Request::save, 0) == step + 17);
  CHECK(third.finish(step + 16) == Request::none);
  CHECK(first.finish(step + 40) == Request::save);
  CHECK(third.finish(step + 17) == Request::save);
  CHECK(page.is_answered());
}

TEST_CASE("a rank that goes on for a step, and takes no part then, isn't waited for") {
  ControlPage page(2);
  RankPage first(page.path(), 0);
  RankPage second(page.path(), 1);
  const std::uint64_t step = ask(page, Request::save, 5);
  CHECK_FALSE(page.is_answered());
  CHECK(second.finish(1) == Request::none);
  CHECK(first.finish(step) == Request::save);
  CHECK_FALSE(page.is_answered());
  CHECK(first.finish(step + 15) == Request::none);
  CHECK_FALSE(page.is_answered());
  CHECK(first.finish(step + 16) == Request::none);
  CHECK(page.is_answered());
}

TEST_CASE("a request takes the place of one that isn't answered") {
  ControlPage page(2);
  RankPage first(page.path(), 0);
  RankPage second(page.path(), 1);
  CHECK(ask(page, Request::save, 0) == 0);
  CHECK(first.finish(0) == Request::save);
  CHECK(ask(page, Request::stop, 0) == 1);
  CHECK(second.finish(0) == Request::none);
  CHECK(first.finish(1) == Request::stop);
  CHECK_FALSE(page.is_answered());
  CHECK(second.finish(1) == Request::stop);
  CHECK(page.is_answered());
}

TEST_CASE("what no step can be is not believed") {
  ControlPage page(2);
  RankPage liar(page.path(), 0);
  CHECK(liar.finish(UINT64_MAX - 1) == Request::none);
  CHECK_FALSE(page.last_step(0));
  CHECK(page.next_step() == 0);
  RankPage honest(page.path(), 1);
  CHECK(ask(page, Request::save, 0) == 0);
  CHECK(honest.finish(0) == Request::save);
}

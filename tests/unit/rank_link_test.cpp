// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include "notify_socket.hpp"
#include "run/rank_link.hpp"
#include "scratch.hpp"

#include <ckpt/error.hpp>

#include <sys/wait.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

using namespace ckpt;
using run::ControlPage;
using run::RankLink;
using run::Request;
using unit_test::NotifySocket;

namespace {

std::string status_for(std::string_view status) {
  const NotifySocket socket;
  RankLink link(socket.name(), "", 0);
  CHECK(link.step(7, status) == Request::none);
  const std::string text = socket.next().value_or("");
  const std::string front = "WATCHDOG=1\nSTATUS=";
  REQUIRE(text.starts_with(front));
  return text.substr(front.size());
}

}  // namespace

TEST_CASE("rank link: steps, signs of life and extensions are sd_notify's datagrams") {
  const NotifySocket socket;
  RankLink link(socket.name(), "", 0);
  CHECK(link.step(1200, "loss 1.93") == Request::none);
  link.alive();
  link.extend(std::chrono::seconds(90));
  CHECK(socket.next() == "WATCHDOG=1\nSTATUS=step 1200 loss 1.93");
  CHECK(socket.next() == "WATCHDOG=1");
  CHECK(socket.next() == "EXTEND_TIMEOUT_USEC=90000000");
  CHECK(!socket.next(0));
}

TEST_CASE("rank link: a status is one line of bounded length, whatever it's made of") {
  CHECK(status_for("") == "step 7");
  CHECK(status_for("a\nb\tc\x1b[1m\x7f") == "step 7 a b c [1m");
  CHECK(status_for("a\nREADY=1") == "step 7 a READY=1");
  CHECK(status_for("x\xc2\x9b!\xc3\xa9") == "step 7 x !\xc3\xa9");
  CHECK(status_for("\xff\xc2") == "step 7 \xff\xc2");
  CHECK(status_for(std::string(10000, 'x')) == "step 7 " + std::string(200, 'x'));
  // Not within a character.
  CHECK(status_for(std::string(199, 'x') + "\xe2\x82\xac...") == "step 7 " + std::string(199, 'x'));
  CHECK(status_for(std::string(197, 'x') + "\xe2\x82\xac...") == "step 7 " + std::string(197, 'x') + "\xe2\x82\xac");
}

TEST_CASE("rank link: without a supervisor nothing happens") {
  RankLink link("", "", 3);
  CHECK(link.step(1, "x") == Request::none);
  link.alive();
  link.extend(std::chrono::seconds(1));
}

TEST_CASE("rank link: a name that can't be a socket's is refused") {
  for (const std::string& name :
       {std::string("relative"), std::string("@"), std::string("/"), "/" + std::string(107, 'x')}) {
    CAPTURE(name);
    Errc code = Errc::interrupted;
    try {
      const RankLink link(name, "", 0);
    } catch (const Error& error) {
      code = error.code();
    }
    CHECK(code == Errc::invalid_argument);
  }
  const RankLink longest("/" + std::string(106, 'x'), "", 0);
}

TEST_CASE("rank link: a supervisor that's gone, or doesn't read, stops nobody") {
  const unit_test::Scratch scratch;
  RankLink nowhere(scratch / "none", "", 0);
  CHECK(nowhere.step(1, "") == Request::none);
  const NotifySocket socket;
  RankLink link(socket.name(), "", 0);
  const auto begun = std::chrono::steady_clock::now();
  for (int i = 0; i < 20000; ++i) link.alive();
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(20));
  const int kept = socket.drain();
  CHECK(kept > 0);
  CHECK(kept < 20000);
  link.alive();
  CHECK(socket.next() == "WATCHDOG=1");
}

TEST_CASE("rank link: what is asked for comes back from the step that it's asked of") {
  const NotifySocket socket;
  ControlPage page(2);
  RankLink link(socket.name(), page.path(), 1);
  CHECK(page.has_joined(1));
  CHECK(link.step(1, "") == Request::none);
  REQUIRE(page.propose(Request::save, 3));
  page.agree();
  CHECK(link.step(2, "") == Request::none);
  CHECK(link.step(3, "") == Request::save);
  CHECK(link.step(4, "") == Request::none);
  CHECK(page.last_step(1) == 4);
}

TEST_CASE("rank link: signs of life go on while a step waits for the supervisor") {
  const NotifySocket socket;
  ControlPage page(1);
  RankLink link(socket.name(), page.path(), 0);
  REQUIRE(page.propose(Request::stop, 0));
  std::atomic<bool> is_over = false;
  std::thread trainer([&] {
    CHECK(link.step(0, "") == Request::stop);
    is_over = true;
  });
  CHECK(socket.next() == "WATCHDOG=1\nSTATUS=step 0");
  for (int i = 0; i < 100; ++i) {
    link.alive();
    CHECK(socket.next() == "WATCHDOG=1");
  }
  CHECK(!is_over);
  page.agree();
  trainer.join();
}

TEST_CASE("rank link: a fork's child says nothing") {
  const NotifySocket socket;
  ControlPage page(1);
  RankLink link(socket.name(), page.path(), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    link.alive();
    link.extend(std::chrono::seconds(1));
    const bool is_quiet = link.step(9, "") == Request::none;
    ::_exit(is_quiet ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(!socket.next(0));
  CHECK(!page.last_step(0));
  link.alive();
  CHECK(socket.next() == "WATCHDOG=1");
}

// SPDX-License-Identifier: Apache-2.0
// Several nodes without any: how ranks are dealt, what the leader decides from the states of nodes that a test makes
// up, and how states travel.
#include "os/fd.hpp"
#include "run/deal.hpp"
#include "run/leader.hpp"
#include "run/line_channel.hpp"
#include "run/tcp_board.hpp"
#include "scratch.hpp"
#include "store/attempts.hpp"

#include <ckpt/error.hpp>

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <array>
#include <nlohmann/json.hpp>
#include <thread>

using namespace ckpt;
using namespace ckpt::run;
using namespace std::chrono_literals;

namespace {

using Time = std::chrono::steady_clock::time_point;

NodeState node_at(const std::string& name, NodePhase phase, std::uint64_t generation, std::uint32_t ranks = 2) {
  NodeState state;
  state.name = name;
  state.life = "life-of-" + name;
  state.address = "host-" + name;
  state.port = 4711;
  state.ranks = ranks;
  state.phase = phase;
  state.generation = generation;
  return state;
}

class FakeBoard final : public Board {
 public:
  void add_to(std::vector<pollfd>&) const override {}
  void turn(Time) override {}
  bool set_ended(pid_t) override { return false; }
  std::vector<pid_t> helpers() const override { return {}; }
  void publish(const NodeState&) override {}
  void keep_in_touch(Time) override {}
  const std::optional<JobState>& job() const override { return state; }
  bool leads() const override { return true; }
  bool knows_nodes() const override { return true; }
  const std::vector<NodeState>& nodes() const override { return all; }
  void decide(const JobState& decided) override { state = decided; }
  bool keeps_count() const override { return counts; }
  std::optional<std::uint64_t> next_generation(std::uint64_t least) override {
    asked.push_back(least);
    return least;
  }
  void leave() override {}

  NodeState& at(std::size_t index) { return all[index]; }
  void set_all(NodePhase phase, std::uint64_t generation) {
    for (NodeState& node : all) {
      node.phase = phase;
      node.generation = generation;
    }
  }

  std::optional<JobState> state = JobState{};
  std::vector<NodeState> all;
  bool counts = false;
  std::vector<std::uint64_t> asked;
};

/// Three nodes with two ranks each, and whoever leads them.
class Job {
 public:
  explicit Job(std::uint32_t least = 3) {
    options.store = scratch / "store";
    options.nodes = 3;
    options.min_nodes = least;
    options.store_seconds = 1e6;
    options.backoff_seconds = 0;
    if (least < 3) options.cluster = "redis://there";
    for (const char* name : {"a", "b", "c"}) board.all.push_back(node_at(name, NodePhase::ready, 0));
    replace_leader();
  }

  void replace_leader() { leader.emplace(options, board, silent); }

  /// Turns until a phase, as long as that takes in the process on the store.
  void turn_until(JobPhase phase) {
    for (int i = 0; i < 4000 && board.state->phase != phase; ++i) {
      turn();
      std::this_thread::sleep_for(5ms);
    }
    REQUIRE(board.state->phase == phase);
  }

  void turn() {
    leader->turn(now);
    for (const pid_t pid : leader->helpers()) {
      if (::waitpid(pid, nullptr, WNOHANG) == pid) (void)leader->set_ended(pid);
    }
  }

  /// A generation runs.
  void start() {
    turn_until(JobPhase::run);
    board.set_all(NodePhase::running, board.state->generation);
  }

  void fail(std::size_t index) {
    board.at(index).phase = NodePhase::failed;
    board.at(index).failure = RunFailure{.cause = RunCause::exit, .exit_status = 9, .detail = "rank 2 failed"};
    turn();
  }

  unit_test::Scratch scratch;
  RunOptions options;
  RunObserver silent;
  FakeBoard board;
  std::optional<Leader> leader;
  Time now = std::chrono::steady_clock::now();
};

std::vector<std::uint32_t> ranks_of(const std::vector<Share>& shares) {
  std::vector<std::uint32_t> ranks;
  for (const Share& share : shares) ranks.push_back(share.ranks);
  return ranks;
}

/// Two ends of a connection: one speaks lines, the other anything.
struct Ends {
  Ends() {
    std::array<int, 2> both{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, both.data()) == 0);
    raw = os::Fd(both[0]);
    channel.emplace(os::Fd(both[1]));
  }
  void say(std::string_view text) { REQUIRE(::send(raw.get(), text.data(), text.size(), MSG_NOSIGNAL) >= 0); }

  os::Fd raw;
  std::optional<LineChannel> channel;
};

}  // namespace

TEST_SUITE("nodes") {
  TEST_CASE("ranks are dealt in the order of the nodes' names") {
    const auto dealt = deal({node_at("b", NodePhase::ready, 0, 3), node_at("a", NodePhase::ready, 0, 2)},
                            {.least_nodes = 1, .most_nodes = 3});
    REQUIRE(dealt);
    CHECK(dealt->world_size == 5);
    CHECK(dealt->shares[0].node == "a");
    CHECK(dealt->shares[1].first_rank == 2);
    CHECK(dealt->shares[1].life == "life-of-b");
  }

  TEST_CASE("nodes in trouble and with too few ranks don't count, and too few nodes get nothing") {
    std::vector<NodeState> nodes{node_at("a", NodePhase::ready, 0), node_at("b", NodePhase::ready, 0, 1)};
    CHECK_FALSE(deal(nodes, {.least_nodes = 2, .most_nodes = 2, .least_ranks = 2}));
    CHECK(deal(nodes, {.least_nodes = 1, .most_nodes = 2, .least_ranks = 2})->world_size == 2);
    nodes[0].trouble = "no disk";
    CHECK_FALSE(deal(nodes, {.least_nodes = 2, .most_nodes = 2}));
    CHECK_FALSE(deal({}, {.least_nodes = 1, .most_nodes = 2}));
  }

  TEST_CASE("what is more than whole groups comes from the last nodes, which may get nothing") {
    const std::vector<NodeState> nodes{node_at("a", NodePhase::ready, 0, 4), node_at("b", NodePhase::ready, 0, 2),
                                       node_at("c", NodePhase::ready, 0, 1)};
    CHECK(ranks_of(deal(nodes, {.most_nodes = 3, .multiple_of = 4})->shares) == std::vector<std::uint32_t>{4});
    CHECK(ranks_of(deal(nodes, {.most_nodes = 3, .multiple_of = 3})->shares) == std::vector<std::uint32_t>{4, 2});
    CHECK(ranks_of(deal(nodes, {.most_nodes = 2, .multiple_of = 1})->shares) == std::vector<std::uint32_t>{4, 2});
    CHECK_FALSE(deal(nodes, {.most_nodes = 3, .multiple_of = 8}));
  }

  TEST_CASE("states come through JSON as they were") {
    NodeState node = node_at("a", NodePhase::failed, 7);
    node.failure = RunFailure{.cause = RunCause::silence, .rank = 5, .step = 12, .last_lines = {"x\xff", "y"}};
    node.last_step = 12;
    node.wants = Request::stop;
    node.is_in_time = true;
    const NodeState again = node_state_from(to_json(node));
    CHECK(to_json(again) == to_json(node));

    JobState job;
    job.revision = 3;
    job.generation = 7;
    job.phase = JobPhase::stop;
    job.shares = {{.node = "a", .life = "l", .first_rank = 1, .ranks = 2}};
    job.retries = {.furthest = 5, .restarts = 4, .in_vain = 3, .at_this_step = 2, .poisoned_in_a_row = 1};
    job.proposal = {.number = 2, .request = Request::stop, .step = 9, .is_agreed = true, .by_signal = true};
    job.outcome = RunOutcome::preempted;
    job.reached = 8;
    CHECK(to_json(job_state_from(to_json(job))) == to_json(job));
    job.outcome.reset();
    job.interval_seconds = 2.5;
    CHECK(to_json(job_state_from(to_json(job))) == to_json(job));
  }

  TEST_CASE("a state that lacks a field, or has another type or an unknown word, is malformed") {
    const auto node = to_json(node_at("a", NodePhase::ready, 1));
    const auto job = to_json(JobState{});
    const auto code_of = [](const auto& read) {
      try {
        read();
      } catch (const Error& error) {
        return error.code();
      }
      return Errc::io;
    };
    for (const auto& [key, value] : node.items()) {
      auto without = node;
      without.erase(key);
      CHECK(code_of([&] { (void)node_state_from(without); }) == Errc::malformed);
      auto other = node;
      other[key] = nlohmann::json::array({1});
      CHECK(code_of([&] { (void)node_state_from(other); }) == Errc::malformed);
    }
    for (const auto& [key, value] : job.items()) {
      auto without = job;
      without.erase(key);
      CHECK(code_of([&] { (void)job_state_from(without); }) == Errc::malformed);
    }
    auto wild = node;
    wild["phase"] = 99;
    CHECK(code_of([&] { (void)node_state_from(wild); }) == Errc::malformed);
    for (const auto& [key, number] :
         std::map<std::string, std::int64_t>{{"port", 65536}, {"ranks", -1}, {"ranks", 1LL << 33}}) {
      wild = node;
      wild[key] = number;
      CHECK(code_of([&] { (void)node_state_from(wild); }) == Errc::malformed);
    }
    CHECK(code_of([&] { (void)node_state_from(nlohmann::json(3)); }) == Errc::malformed);
  }

  TEST_CASE("a generation starts once all nodes are ready, with the first one's address") {
    Job job;
    job.board.at(1).phase = NodePhase::preparing;
    for (int i = 0; i < 20; ++i) job.turn();
    CHECK(job.leader->helpers().empty());
    job.board.at(1).phase = NodePhase::ready;
    job.turn_until(JobPhase::run);
    const JobState& state = *job.board.state;
    CHECK(state.generation == 1);
    CHECK(state.world_size == 6);
    CHECK(state.master_address == "host-a");
    CHECK(state.master_port == 4711);
    CHECK_FALSE(state.resume_step);
  }

  TEST_CASE("a failure stops all nodes, and the next attempt waits until they have") {
    Job job;
    job.start();
    job.fail(1);
    CHECK(job.board.state->phase == JobPhase::stop);
    CHECK(job.board.state->failure->exit_status == 9);
    job.turn();
    CHECK(job.board.state->phase == JobPhase::stop);
    job.board.set_all(NodePhase::ready, 1);
    job.turn_until(JobPhase::run);
    CHECK(job.board.state->generation == 2);
    CHECK(job.board.state->retries.restarts == 1);
    CHECK_FALSE(job.board.state->failure);
  }

  TEST_CASE("a node that is gone, or was started anew, fails the attempt") {
    Job job;
    job.start();
    SUBCASE("gone") { job.board.all.erase(job.board.all.begin() + 1); }
    SUBCASE("started anew") {
      job.board.at(1) = node_at("b", NodePhase::ready, 0);
      job.board.at(1).life = "another";
    }
    SUBCASE("in trouble") { job.board.at(1).trouble = "its disk is full"; }
    job.turn();
    CHECK(job.board.state->phase == JobPhase::stop);
    CHECK(job.board.state->failure->cause == RunCause::node);
    CHECK(job.board.state->failure->rank == 2);
  }

  TEST_CASE("a fixed number of nodes waits for one that is gone, but not for ever") {
    Job job;
    job.start();
    job.board.all.pop_back();
    job.turn();
    job.board.set_all(NodePhase::ready, 1);
    job.turn_until(JobPhase::gather);
    job.turn();
    job.now += 59s;
    job.turn();
    CHECK(job.board.state->phase == JobPhase::gather);
    job.now += 2s;
    job.turn();
    CHECK(job.board.state->phase == JobPhase::over);
    CHECK(job.board.state->outcome == RunOutcome::failed);
    CHECK(job.board.state->why.find("2 of 3 nodes") != std::string::npos);
  }

  TEST_CASE("where nodes come and go the rest goes on") {
    Job job(2);
    job.start();
    job.board.all.pop_back();
    job.turn();
    job.board.set_all(NodePhase::ready, 1);
    job.turn_until(JobPhase::gather);
    job.turn();
    job.now += 2s;
    job.turn_until(JobPhase::run);
    CHECK(job.board.state->generation == 2);
    CHECK(job.board.state->world_size == 4);
  }

  TEST_CASE("a leader that takes over goes on from each phase") {
    Job job;
    job.start();
    SUBCASE("while ranks run") {
      job.replace_leader();
      job.turn();
      CHECK(job.board.state->phase == JobPhase::run);
      job.fail(0);
    }
    SUBCASE("before the failure is decided about") {
      job.board.at(0).phase = NodePhase::failed;
      job.board.at(0).failure = RunFailure{};
      job.replace_leader();
      job.turn();
    }
    SUBCASE("after a node has given up what another leader stopped") {
      job.board.at(0).phase = NodePhase::preparing;
      job.replace_leader();
      job.turn();
    }
    SUBCASE("while they're stopped") {
      job.fail(0);
      job.replace_leader();
    }
    CHECK(job.board.state->phase == JobPhase::stop);
    job.board.set_all(NodePhase::ready, 1);
    job.turn_until(JobPhase::gather);
    // It also takes over while the next attempt is prepared.
    for (int i = 0; i < 10; ++i) job.turn();
    job.leader->rest();
    job.replace_leader();
    job.turn_until(JobPhase::run);
    CHECK(job.board.state->generation >= 2);
    CHECK(job.board.state->retries.restarts == 1);
  }

  TEST_CASE("a leader that takes over after the end ends it, as what it was to end") {
    Job job;
    job.start();
    job.board.set_all(NodePhase::done, 1);
    job.turn();
    CHECK(job.board.state->phase == JobPhase::stop);
    job.replace_leader();
    job.board.set_all(NodePhase::ready, 1);
    job.turn_until(JobPhase::over);
    CHECK(job.board.state->outcome == RunOutcome::finished);
  }

  TEST_CASE("one node asked to end makes all end, also if that node is gone then") {
    Job job(2);
    job.start();
    for (NodeState& node : job.board.all) node.has_joined = true;
    job.board.at(2).wants = Request::stop;
    job.turn();
    job.turn();
    CHECK(job.board.state->proposal.request == Request::stop);
    CHECK_FALSE(job.board.state->proposal.by_signal);
    job.board.all.pop_back();
    job.replace_leader();
    job.turn();
    CHECK(job.board.state->phase == JobPhase::stop);
    job.board.set_all(NodePhase::ready, 1);
    job.turn_until(JobPhase::over);
    CHECK(job.board.state->outcome == RunOutcome::preempted);
  }

  TEST_CASE("a request is settled once no rank anywhere has gone past its step") {
    Job job;
    job.options.interval_seconds = 1;
    job.start();
    for (NodeState& node : job.board.all) {
      node.has_joined = true;
      node.next_step = 10;
    }
    job.turn();
    job.now += 2s;
    job.turn();
    const Proposal& proposal = job.board.state->proposal;
    CHECK(proposal.request == Request::save);
    CHECK(proposal.step == 10);
    // One is at 14 when it hears of it, another hasn't heard.
    job.board.at(0).proposal = proposal.number;
    job.board.at(0).next_step = 14;
    job.board.at(1).proposal = proposal.number;
    job.board.at(1).is_in_time = true;
    const std::uint64_t number = proposal.number;
    job.turn();
    CHECK(proposal.number == number);
    job.board.at(2).proposal = proposal.number;
    job.board.at(2).is_in_time = true;
    job.turn();
    CHECK(proposal.number == number + 1);
    CHECK(proposal.step >= 18);
    CHECK_FALSE(proposal.is_agreed);
    for (NodeState& node : job.board.all) {
      node.proposal = proposal.number;
      node.is_in_time = true;
      node.is_answered = false;
    }
    // One that has ended meanwhile has nothing to say to it.
    job.board.at(1).phase = NodePhase::done;
    job.board.at(1).is_in_time = false;
    job.turn();
    CHECK(proposal.is_agreed);
    job.turn();
    CHECK(proposal.request == Request::save);
    for (NodeState& node : job.board.all) node.is_answered = true;
    job.turn();
    CHECK(proposal.request == Request::none);
  }

  TEST_CASE("ranks that look for no requests get a signal: at once if none does, else once the others have ended") {
    Job job;
    job.start();
    job.board.at(0).wants = Request::stop;
    SUBCASE("none") {
      job.turn();
      job.turn();
      CHECK(job.board.state->proposal.by_signal);
    }
    SUBCASE("some") {
      job.board.at(0).has_joined = true;
      job.turn();
      job.turn();
      CHECK(job.board.state->proposal.request == Request::none);
      job.now += 11s;
      job.turn();
      CHECK(job.board.state->proposal.request == Request::stop);
      CHECK_FALSE(job.board.state->proposal.by_signal);
      job.board.at(0).phase = NodePhase::done;
      job.turn();
      job.now += 6s;
      job.turn();
      CHECK(job.board.state->proposal.by_signal);
    }
  }

  TEST_CASE("a job that was asked to end is stopped when its grace is over, also by another leader") {
    Job job;
    job.options.grace_seconds = 30;
    job.start();
    job.board.at(0).wants = Request::stop;
    job.turn();
    job.turn();
    job.replace_leader();
    job.turn();
    job.now += 31s;
    job.turn();
    CHECK(job.board.state->phase == JobPhase::stop);
    job.board.set_all(NodePhase::ready, 1);
    job.turn_until(JobPhase::over);
    CHECK(job.board.state->outcome == RunOutcome::preempted);
  }

  TEST_CASE("a store that has seen a higher attempt than the board gets a higher one still") {
    Job job(2);
    job.board.counts = true;
    const auto store = store::Store::open_for_writing(job.options.store, true);
    store::open_attempt(store, 40);
    job.turn_until(JobPhase::run);
    CHECK(job.board.state->generation == 41);
    CHECK(job.board.asked == std::vector<std::uint64_t>{41});
  }

  TEST_CASE("an error that the leader can't go on after ends the job for all") {
    Job job;
    job.start();
    job.leader->give_up("the store is gone");
    CHECK(job.board.state->phase == JobPhase::over);
    CHECK(job.board.state->outcome == RunOutcome::failed);
    CHECK(job.board.state->why == "the store is gone");
  }

  TEST_CASE("lines come whole, however they are cut") {
    Ends ends;
    ends.say("{\"a\":1}\n{\"b\"");
    CHECK(ends.channel->receive().size() == 1);
    ends.say(":2}\n");
    const auto lines = ends.channel->receive();
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].at("b") == 2);
    CHECK(ends.channel->is_open());
    ends.raw = os::Fd();
    CHECK(ends.channel->receive().empty());
    CHECK_FALSE(ends.channel->is_open());
  }

  TEST_CASE("what isn't a line of JSON closes the channel") {
    Ends ends;
    SUBCASE("text") { ends.say("hello\n"); }
    SUBCASE("no object") { ends.say("[1]\n"); }
    SUBCASE("empty") { ends.say("\n"); }
    SUBCASE("not UTF-8") { ends.say("{\"a\":\"\xff\"}\n"); }
    CHECK(ends.channel->receive().empty());
    CHECK_FALSE(ends.channel->is_open());
  }

  TEST_CASE("a line without an end closes the channel") {
    Ends ends;
    const std::string chunk(1 << 14, 'x');
    for (int i = 0; i < 80 && ends.channel->is_open(); ++i) {
      ends.say(chunk);
      CHECK(ends.channel->receive().empty());
    }
    CHECK_FALSE(ends.channel->is_open());
  }

  TEST_CASE("a meeting is a host and a port") {
    CHECK(parse_meeting("node0:29400").host == "node0");
    CHECK(parse_meeting("[fe80::1]:1").host == "fe80::1");
    for (const char* bad : {"", "node0", "node0:", ":1", "node0:0", "node0:65536", "node0:x", "[]:1"})
      CHECK_THROWS_AS((void)parse_meeting(bad), const Error&);
    CHECK(node_name_of(9) < node_name_of(10));
  }
}

// SPDX-License-Identifier: Apache-2.0
#include "run/redis_board.hpp"

#include "os/fd.hpp"
#include "run/line_channel.hpp"
#include "run/redis_link.hpp"
#include "run/saying.hpp"
#include "run/ticks.hpp"

#include <ckpt/error.hpp>

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace ckpt::run {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds between_starts(1);

class RedisBoard final : public Board {
 public:
  explicit RedisBoard(const RunOptions& options)
      : settings_{.address = doors::parse_redis_address(options.cluster),
                  .password = {},
                  .name = options.node_name,
                  .life = {},
                  .lease = std::chrono::milliseconds(std::llround(options.lease_seconds * 1000))},
        join_end_(Clock::now() + ticks(Seconds(options.join_seconds))) {
    settings_.password = doors::redis_password(settings_.address, options.cluster_password);
  }

  RedisBoard(const RedisBoard&) = delete;
  RedisBoard& operator=(const RedisBoard&) = delete;
  ~RedisBoard() override {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }

  void add_to(std::vector<pollfd>& watched) const override {
    if (channel_) channel_->add_to(watched);
  }

  void turn(Clock::time_point now) override {
    if (channel_) {
      for (const json& line : channel_->receive()) take(line, now);
      if (!channel_->is_open()) lose_link();
    }
    if (!channel_ && now >= next_start_ && saying_.state()) start_link(now);
    if (!leads()) decided_.reset();
    keep_in_touch(now);
    // A node with this one's name may have died a moment ago: then its lease ends.
    if (taken_since_ && now - *taken_since_ > 2 * settings_.lease)
      throw Error(Errc::busy,
                  fmt::format("another node of '{}' calls itself '{}'", settings_.address.text(), settings_.name))
          .with_hint("give each a --node=NAME of its own");
    if (!was_reached_ && now > join_end_)
      throw Error(Errc::busy, lost_.empty() ? "cannot reach '" + settings_.address.text() + "'" : lost_);
  }

  bool set_ended(pid_t pid) override {
    if (pid != pid_) return false;
    pid_ = -1;
    return true;
  }

  [[nodiscard]] std::vector<pid_t> helpers() const override {
    if (pid_ < 0) return {};
    return {pid_};
  }

  void publish(const NodeState& state) override {
    saying_.set(state);
    settings_.life = state.life;
  }

  void keep_in_touch(Clock::time_point now) override {
    if (!channel_) return;
    channel_->flush();
    if (!saying_.is_due(now) || !channel_->is_drained()) return;
    channel_->send({{"state", to_json(*saying_.state())}, {"urgent", saying_.is_urgent()}});
    saying_.set_said(now);
  }

  [[nodiscard]] const std::optional<JobState>& job() const override { return job_; }
  [[nodiscard]] const std::optional<JobState>& decided() const override { return decided_ ? decided_ : job_; }

  [[nodiscard]] bool leads() const override { return leads_until_ && Clock::now() < *leads_until_; }

  /// After a time without Redis, when it may have lost the nodes, each has a lease's time to say that it's there.
  [[nodiscard]] bool knows_nodes() const override {
    if (!leads() || !contact_since_ || !has_nodes_) return false;
    return !job_ || job_->generation == 0 || Clock::now() - *contact_since_ >= settings_.lease;
  }

  [[nodiscard]] const std::vector<NodeState>& nodes() const override { return nodes_; }

  void decide(const JobState& state) override {
    if (!leads() || !channel_ || !decided()) return;
    channel_->send({{"decide", to_json(state)}, {"base", {decided()->generation, decided()->revision}}});
    decided_ = state;
  }

  [[nodiscard]] bool keeps_count() const override { return true; }
  [[nodiscard]] std::optional<std::uint64_t> next_generation(std::uint64_t least) override {
    if (number_ && *number_ >= least) return std::exchange(number_, std::nullopt);
    if (channel_ && std::exchange(asked_number_, least) != least) channel_->send({{"number", least}});
    return std::nullopt;
  }

  [[nodiscard]] std::optional<std::string> take_warning() override { return std::exchange(warning_, std::nullopt); }

  void leave() override {
    if (!channel_) return;
    keep_in_touch(Clock::now());
    // Why it can't go on is to be seen until its lease ends.
    channel_->send({{"leave", true}, {"forget", saying_.state() && saying_.state()->trouble.empty()}});
    const auto end = Clock::now() + farewell;
    while (channel_->is_open() && Clock::now() < end) {
      std::vector<pollfd> watched;
      channel_->add_to(watched);
      (void)::poll(watched.data(), watched.size(), 50);
      channel_->flush();
      (void)channel_->receive();
    }
    channel_.reset();
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
  }

 private:
  void start_link(Clock::time_point now) {
    next_start_ = now + between_starts;
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      os::throw_errno(errno, "cannot make a pair of sockets");
    os::Fd here(ends[0]);
    os::Fd there(ends[1]);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) os::throw_errno(errno, "cannot start a process");
    if (pid_ == 0) {
      if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(1);
      (void)::prctl(PR_SET_NAME, "ckpt-link");
      here = os::Fd();
      RedisLink(settings_, std::move(there)).run();
      ::_exit(0);
    }
    channel_.emplace(std::move(here));
    // Should Redis have forgotten it, it's still known here.
    if (job_) channel_->send({{"know", to_json(*job_)}});
    saying_.set_said(now - between_starts);
  }

  /// Another is started: what it has to know is told it again.
  void lose_link() {
    channel_.reset();
    leads_until_.reset();
    contact_since_.reset();
    has_nodes_ = false;
    asked_number_.reset();
    if (pid_ > 0) ::kill(pid_, SIGKILL);
  }

  void take(const json& line, Clock::time_point now) {
    if (line.contains("error"))
      throw Error(static_cast<Errc>(line.at("code").get<int>()), line.at("error").get<std::string>());
    if (line.contains("job")) {
      job_ = job_state_from(line.at("job"));
      if (decided_ && !job_->is_before(*decided_)) decided_.reset();
    }
    if (line.contains("rejected")) decided_.reset();
    if (line.contains("leads_until")) {
      leads_until_ = Clock::time_point(std::chrono::nanoseconds(line.at("leads_until").get<std::int64_t>()));
      if (!leads()) asked_number_.reset();
      if (!leads()) has_nodes_ = false;
    }
    if (line.contains("nodes")) take_nodes(line.at("nodes"));
    if (line.contains("number")) {
      number_ = line.at("number").get<std::uint64_t>();
      asked_number_.reset();
    }
    if (line.contains("taken")) {
      taken_since_.reset();
      if (line.at("taken").get<bool>()) taken_since_ = now;
    }
    if (line.contains("contact_since")) {
      contact_since_ = Clock::time_point(std::chrono::nanoseconds(line.at("contact_since").get<std::int64_t>()));
      if (!lost_.empty()) warning_ = "'" + settings_.address.text() + "' is there again";
      lost_.clear();
      was_reached_ = true;
    }
    if (line.contains("lost")) {
      contact_since_.reset();
      asked_number_.reset();
      if (lost_.empty()) warning_ = line.at("lost").get<std::string>() + "; the ranks go on, and nothing is decided";
      lost_ = line.at("lost").get<std::string>();
    }
  }

  void take_nodes(const json& list) {
    nodes_.clear();
    has_nodes_ = true;
    for (const json& each : list) {
      try {
        nodes_.push_back(node_state_from(each));
      } catch (const Error&) {
        // Who writes such a thing is no node.
      }
    }
  }

  RedisLinkSettings settings_;
  Clock::time_point join_end_;
  Clock::time_point next_start_;
  pid_t pid_ = -1;
  std::optional<LineChannel> channel_;
  Saying saying_;

  std::optional<JobState> job_;
  std::optional<JobState> decided_;
  std::vector<NodeState> nodes_;
  bool has_nodes_ = false;
  std::optional<Clock::time_point> leads_until_;
  std::optional<Clock::time_point> contact_since_;
  std::optional<Clock::time_point> taken_since_;
  std::optional<std::uint64_t> number_;
  std::optional<std::uint64_t> asked_number_;
  bool was_reached_ = false;
  std::string lost_;
  std::optional<std::string> warning_;
};

}  // namespace

std::unique_ptr<Board> open_redis_board(const RunOptions& options) { return std::make_unique<RedisBoard>(options); }

}  // namespace ckpt::run

// SPDX-License-Identifier: Apache-2.0
#include "run_options.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <tuple>
#include <utility>

#include "cli/environment.hpp"
#include "cli/quantities.hpp"
#include "cli/record.hpp"
#include "peer_options.hpp"

namespace ckpt::cli {
namespace {

constexpr std::uint32_t most_ranks = 1U << 16U;
constexpr std::size_t most_node_name = 255;

/// What is parsed to something else than it's said as.
struct Spelling {
  std::string store;
  std::optional<std::string> rsh;
  std::optional<std::uint32_t> node_rank;
  std::optional<std::string> node;
  std::optional<std::string> node_address;
};

/// N or MIN:MAX.
std::pair<std::uint32_t, std::uint32_t> parse_range(std::string_view text) {
  const auto colon = text.find(':');
  const auto number = [](std::string_view digits) {
    return static_cast<std::uint32_t>(parse_number(digits, 1, most_ranks));
  };
  if (colon == std::string_view::npos) return {number(text), number(text)};
  const auto least = number(text.substr(0, colon));
  const auto most = number(text.substr(colon + 1));
  if (least > most)
    throw Error(Errc::invalid_argument, fmt::format("'{}' is no range: its least is more than its most", text));
  return {least, most};
}

std::string shown_range(std::uint32_t least, std::uint32_t most) {
  return least == most ? std::to_string(least) : fmt::format("{}:{}", least, most);
}

/// "TERM", "SIGTERM" or a number.
int parse_signal(std::string_view text) {
  std::string_view name = text;
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int signal = 1; signal < NSIG; ++signal) {
    const char* const known = ::sigabbrev_np(signal);
    if (known != nullptr && name == known) return signal;
  }
  if (!text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }))
    return static_cast<int>(parse_number(text, 1, NSIG - 1));
  throw Error(Errc::invalid_argument, fmt::format("'{}' is no signal", text));
}

std::string shown_signal(int signal) {
  const char* const known = ::sigabbrev_np(signal);
  return known != nullptr ? std::string(known) : std::to_string(signal);
}

std::string shown(const std::optional<double>& seconds) { return seconds ? number_text(*seconds) : "off"; }

/// Longer ones would overflow the clocks' ticks.
double parse_time(const std::string& text) {
  constexpr double longest = 1e9;
  const double seconds = parse_duration(text);
  if (seconds > longest) throw Error(Errc::invalid_argument, fmt::format("'{}' is more than 30 years", text));
  return seconds;
}

double parse_time_above_0(const std::string& text) {
  const double seconds = parse_time(text);
  if (!(seconds > 0)) throw Error(Errc::invalid_argument, fmt::format("'{}' is not above 0", text));
  return seconds;
}

/// TIME, or "off" for none.
std::optional<double> parse_limit(const std::string& text) {
  if (text == "off") return std::nullopt;
  const double seconds = parse_time(text);
  if (!(seconds > 0)) throw Error(Errc::invalid_argument, fmt::format("'{}' is not above 0; 'off' turns it off", text));
  return seconds;
}

void declare_ranks(CommandLine& line, RunOptions& run, Spelling& spelling) {
  line.section("What runs");
  line.option("--store", "STORE", "where its checkpoints are; made if it isn't there", spelling.store);
  line.option(
      "--nproc", "N|MIN:MAX", "ranks on this node (default: 1)",
      [&run](const std::string& text) { std::tie(run.min_ranks, run.max_ranks) = parse_range(text); },
      [&run] { return shown_range(run.min_ranks, run.max_ranks); });
  line.option("--nproc-per-node", "N|MIN:MAX", "the same, as torchrun calls it",
              [&run](const std::string& text) { std::tie(run.min_ranks, run.max_ranks) = parse_range(text); }, {});
  line.option("--multiple-of", "N", "ranks only in groups of N: tensor or pipeline parallel", run.multiple_of, 1U,
              most_ranks);
  line.option("--health-check", "COMMAND", "a shell command: whether a slot is fit, before each start",
              run.health_check);
  line.option(
      "--health-interval", "TIME", "try slots that are left out so often (default: 60)",
      [&run](const std::string& text) { run.health_seconds = parse_time_above_0(text); },
      [&run] { return number_text(run.health_seconds); });
  line.option("--run-id", "NAME", "TORCHELASTIC_RUN_ID of the ranks", run.run_id);
}

void declare_recovery(CommandLine& line, RunOptions& run, Spelling& spelling) {
  line.section("What it resumes from");
  line.option(
      "--verify", "LEVEL", "quick, stored or deep: before a checkpoint is used",
      [&run](const std::string& text) {
        if (text != "quick" && text != "stored" && text != "deep")
          throw Error(Errc::invalid_argument, fmt::format("'{}' is none of quick, stored, deep", text));
        run.verify = text == "quick" ? VerifyLevel::quick : text == "stored" ? VerifyLevel::stored : VerifyLevel::deep;
      },
      [&run] {
        return std::string(run.verify == VerifyLevel::quick    ? "quick"
                           : run.verify == VerifyLevel::stored ? "stored"
                                                               : "deep");
      });
  line.option("--from", "STORE", "a replica that may have what is damaged here; may be repeated", run.from);
  declare_rsh(line, spelling.rsh);
  line.option("--restore-to", "DIR", "restore it there first, for scripts that want files", run.restore_to);
  line.option(
      "--store-timeout", "TIME", "how long the store may not answer (default: 600)",
      [&run](const std::string& text) { run.store_seconds = parse_time_above_0(text); },
      [&run] { return number_text(run.store_seconds); });
}

void declare_failures(CommandLine& line, RunOptions& run) {
  line.section("What is a failure, and then");
  line.option(
      "--heartbeat", "TIME|off", "silence after a first heartbeat (default: 600)",
      [&run](const std::string& text) { run.heartbeat_seconds = parse_limit(text); },
      [&run] { return shown(run.heartbeat_seconds); });
  line.option(
      "--start-timeout", "TIME|off", "until the first heartbeat (default: off)",
      [&run](const std::string& text) { run.start_seconds = parse_limit(text); },
      [&run] { return shown(run.start_seconds); });
  line.option(
      "--stop-signal", "SIGNAL", "to the ranks that are left (default: KILL)",
      [&run](const std::string& text) { run.stop_signal = parse_signal(text); },
      [&run] { return shown_signal(run.stop_signal); });
  line.option("--max-restarts", "N", "give up after so many in all (default: no limit)", run.max_restarts);
  line.option("--max-retries-per-step", "N", "deaths from one checkpoint until it's poisoned", run.max_retries_per_step,
              1U);
  line.option(
      "--backoff", "TIME", "before the second try in vain, then twice that (default: 1)",
      [&run](const std::string& text) { run.backoff_seconds = parse_time(text); },
      [&run] { return number_text(run.backoff_seconds); });
}

void declare_saves(CommandLine& line, RunOptions& run) {
  line.section("Saves that are asked for");
  line.option(
      "--interval", "TIME|auto", "ask the ranks to save so often",
      [&run](const std::string& text) {
        run.interval_auto = text == "auto";
        run.interval_seconds.reset();
        if (!run.interval_auto) run.interval_seconds = parse_limit(text);
      },
      [&run] { return run.interval_auto ? std::string("auto") : shown(run.interval_seconds); });
  line.option(
      "--preempt-signal", "SIGNAL", "this asks to save and end, as TERM does",
      [&run](const std::string& text) { run.preempt_signals = {parse_signal(text)}; },
      [&run] { return run.preempt_signals.empty() ? std::string() : shown_signal(run.preempt_signals.front()); });
  line.option(
      "--grace", "TIME", "how long that may take (default: 120)",
      [&run](const std::string& text) { run.grace_seconds = parse_time(text); },
      [&run] { return number_text(run.grace_seconds); });
}

void declare_logs(CommandLine& line, RunOptions& run) {
  line.section("Output of the ranks");
  line.option("--log-dir", "DIR", "a file for each: DIR/attempt-N/rank-R.log", run.log_directory);
  line.option(
      "--log-size", "SIZE", "begin a new file then (default: 64M)",
      [&run](const std::string& text) { run.log_bytes = parse_size(text); },
      [&run] { return std::to_string(run.log_bytes); });
  line.option("--log-files", "N", "old ones that are kept (default: 3)", run.log_files, 0U, 1000U);
}

void declare_nodes(CommandLine& line, RunOptions& run, Spelling& spelling) {
  line.section("Several nodes");
  line.option(
      "--nnodes", "N|MIN:MAX", "how many (default: 1)",
      [&run](const std::string& text) { std::tie(run.min_nodes, run.nodes) = parse_range(text); },
      [&run] { return shown_range(run.min_nodes, run.nodes); });
  line.option("--node-rank", "R", "a fixed number: which this one is, from 0", spelling.node_rank, 0U, most_ranks);
  line.option("--master", "HOST:PORT", "a fixed number: where node 0 listens", run.meeting);
  line.option(
      "--join-timeout", "TIME", "a fixed number: wait so long for all (default: 600)",
      [&run](const std::string& text) { run.join_seconds = parse_duration(text); },
      [&run] { return number_text(run.join_seconds); });
  line.option("--cluster", "URL", "redis://HOST:PORT?key=NAME: nodes come and go", run.cluster);
  line.option("--node", "NAME", "in a cluster: this one's (default: the host's name)", spelling.node);
  line.option("--node-address", "HOST", "in a cluster: where its ranks are reached", spelling.node_address);
  line.option(
      "--lease", "TIME", "a node that is silent for so long is gone (default: 10)",
      [&run](const std::string& text) { run.lease_seconds = parse_duration(text); },
      [&run] { return number_text(run.lease_seconds); });
}

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return {};
  return name.data();
}

/// One of two ways for nodes to meet, whole.
void take_nodes(const Program& program, RunOptions& run, const Spelling& spelling) {
  const auto refuse = [&](const std::string& why) { throw usage_error(program, why); };
  if (!(run.lease_seconds >= 0.5)) refuse("--lease is half a second at least");
  if (!run.cluster.empty()) {
    if (!run.meeting.empty() || spelling.node_rank) refuse("--cluster needs neither --master nor --node-rank");
    run.node_name = spelling.node.value_or(host_name());
    if (run.node_name.empty() || run.node_name.size() > most_node_name) refuse("--node is a name of 1 to 255 bytes");
    if (spelling.node_address == "") refuse("--node-address is empty");
    run.node_address = spelling.node_address.value_or(std::string());
    run.cluster_password = environment_text("REDISCLI_AUTH").value_or(std::string());
    return;
  }
  if (spelling.node || spelling.node_address) refuse("--node and --node-address go with --cluster");
  if (run.nodes == 1 && run.meeting.empty()) {
    if (spelling.node_rank.value_or(0) != 0) refuse("--node-rank goes with --nnodes");
    return;
  }
  if (run.min_nodes != run.nodes) refuse("--nnodes=MIN:MAX needs --cluster");
  if (run.meeting.empty()) refuse("several nodes need --master=HOST:PORT, or --cluster");
  if (!spelling.node_rank) refuse("--master needs --node-rank");
  if (*spelling.node_rank >= run.nodes) refuse(fmt::format("--node-rank is below --nnodes, {}", run.nodes));
  run.node_rank = *spelling.node_rank;
}

std::vector<std::string> whole_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) entries.emplace_back(*entry);
  return entries;
}

/// What nohup(1) or a script's `&` set aside stays so.
bool is_ignored(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

std::vector<int> signals_of(const RunOptions& run) {
  std::vector<int> signals{SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};
  std::erase_if(signals, is_ignored);
  for (const int signal : run.preempt_signals) {
    if (std::ranges::find(signals, signal) == signals.end()) signals.push_back(signal);
  }
  return signals;
}

void check(const Program& program, const RunOptions& run, const Spelling& spelling) {
  if (spelling.store.empty()) throw usage_error(program, "no --store given");
  if (run.command.empty()) throw usage_error(program, "no COMMAND given");
  for (const int signal : run.preempt_signals) {
    if (signal == SIGKILL || signal == SIGSTOP || signal == SIGCHLD)
      throw usage_error(program, fmt::format("SIG{} can't ask for anything", shown_signal(signal)));
  }
  if (program.format() != Format::human && run.log_directory.empty())
    throw usage_error(program, "with a report on standard output the ranks' output needs --log-dir");
}

}  // namespace

std::optional<RunRequest> parse_run_request(Program& program) {
  RunRequest request;
  RunOptions& run = request.run;
  Spelling spelling;
  declare_ranks(program.line(), run, spelling);
  declare_nodes(program.line(), run, spelling);
  declare_recovery(program.line(), run, spelling);
  declare_failures(program.line(), run);
  declare_saves(program.line(), run);
  declare_logs(program.line(), run);
  program.add_jobs_option();
  program.add_metrics_option();
  auto operands = program.parse();
  if (!operands) return std::nullopt;
  run.command = std::move(*operands);
  check(program, run, spelling);
  take_nodes(program, run, spelling);
  const Address address = parse_address(spelling.store);
  if (address.selector.kind != Selector::Kind::none)
    throw usage_error(program, "a whole STORE is given, without @STEP: the newest good checkpoint is found");
  // Ranks may change their directory.
  run.store = std::filesystem::absolute(address.store).string();
  if (!run.restore_to.empty()) run.restore_to = std::filesystem::absolute(run.restore_to).string();
  if (!run.from.empty()) run.peer.rsh = remote_shell(spelling.rsh);
  run.peer.jobs = program.jobs();
  run.jobs = program.jobs();
  run.environment = whole_environment();
  if (run.run_id.empty()) run.run_id = fmt::format("ckpt-run-{}", ::getpid());
  request.signals = signals_of(run);
  return request;
}

}  // namespace ckpt::cli

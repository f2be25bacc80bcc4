// SPDX-License-Identifier: Apache-2.0
// ckpt-serve: makes durable what others handed over, in the foreground, for systemd or a terminal.
#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/serve.hpp>

#include <optional>

#include "cli/environment.hpp"
#include "cli/program.hpp"
#include "cli/service_notice.hpp"
#include "peer_options.hpp"
#include "server_chores.hpp"
#include "server_metrics.hpp"

namespace ckpt::cli {
namespace {

struct Request {
  ServeOptions serve;
  std::optional<std::string> prune;
  std::optional<std::uint64_t> scrub_rate;
  bool compress = false;
  std::optional<std::string> rsh;
};

void declare(CommandLine& line, Request& request) {
  line.section("What is taken");
  line.option("--spool", "DIR", "this spool too; may be repeated", request.serve.spools);
  line.option("--from", "URL", "the queue redis://HOST:PORT[/DB]?key=NAME; may be repeated", request.serve.from);
  line.flag("--until-idle", "end once nothing is staged", request.serve.until_idle);
  line.section("Where it goes on to");
  line.option("--replica", "STORE", "bring this store alike as well, also HOST:STORE; may be repeated",
              request.serve.replicas);
  declare_rsh(line, request.rsh);
  line.section("In idle time");
  line.option("--prune", "POLICY", "remove checkpoints; POLICY is ckpt-prune's options", request.prune);
  line.option(
      "--scrub", "RATE", "verify every stored byte, again and again, at this rate",
      [&request](const std::string& text) { request.scrub_rate = parse_size(text); },
      [&request] { return request.scrub_rate ? std::to_string(*request.scrub_rate) : std::string(); });
  line.flag("--compress", "store the newest in full, older ones against newer ones", request.compress);
}

/// Reports, notices and metrics of one server.
class Observer final : public ServeObserver {
 public:
  Observer(Program& program, Report& report, ServerMetrics& metrics, ServiceNotice& notice)
      : program_(program), report_(report), metrics_(metrics), notice_(notice) {}

  void progress(const Progress& progress) override {
    notice_.alive();
    program_.monitor().progress(progress);
  }
  void warning(std::string_view message) override { program_.messages().warning(message); }
  void note(std::string_view message) override { program_.messages().note(message); }
  [[nodiscard]] bool stop_requested() const override { return pending_signal() != 0; }

  void served(const ServedSave& save) override {
    ++saves_;
    const std::string what = fmt::format("step {} rank {}", save.step, save.rank);
    if (save.state == SaveState::failed) {
      program_.messages().error(
          fmt::format("{} failed twice and is kept aside in '{}': {}", what, save.door, save.reason));
    } else if (save.will_retry) {
      program_.messages().warning(fmt::format("{} will be tried again: {}", what, save.reason));
    } else {
      program_.messages().note(fmt::format("{} is {}", what, to_string(save.state)));
    }
    put(save);
    metrics_.add(save);
    write_metrics();
    notice_.alive();
  }

  void turn(const std::vector<DoorState>& doors) override {
    if (!ready_) notice_.ready();
    ready_ = true;
    std::uint64_t waiting = 0;
    for (const DoorState& door : doors) waiting += door.saves;
    notice_.alive();
    notice_.status(fmt::format("{} saves served, {} waiting", saves_, waiting));
    metrics_.set_doors(doors);
    write_metrics();
  }

  void replica(const ReplicaState& state) override { metrics_.set_replica(state); }

  void chore_failed(std::string_view name, std::string_view reason) override {
    program_.messages().warning(fmt::format("{}: {}", name, reason));
    metrics_.add_chore_failure(std::string(name));
  }

 private:
  /// A full disk is no reason to stop saving: said once.
  void write_metrics() {
    try {
      metrics_.write(false);
      metrics_failure_.clear();
    } catch (const Error& error) {
      if (metrics_failure_ != error.what()) program_.messages().warning(error.what());
      metrics_failure_ = error.what();
    }
  }

  void put(const ServedSave& save) {
    report_.record({"served",
                    {{"step", save.step},
                     {"state", std::string(to_string(save.state))},
                     {"rank", std::uint64_t{save.rank}},
                     {"world_size", std::uint64_t{save.world_size}},
                     {"will_retry", save.will_retry},
                     {"reason", text_or_none(save.reason)},
                     {"door", save.door},
                     {"raw_bytes", save.raw_bytes},
                     {"stored_bytes", save.stored_bytes},
                     {"stall_seconds", field_of(save.stall_seconds)},
                     {"write_seconds", save.write_seconds},
                     {"commit_seconds", save.commit_seconds},
                     {"total_seconds", save.total_seconds}}});
    program_.output().flush();  // someone may be following
  }

  Program& program_;
  Report& report_;
  ServerMetrics& metrics_;
  ServiceNotice& notice_;
  std::uint64_t saves_ = 0;
  bool ready_ = false;
  std::string metrics_failure_;
};

void add_chores(Request& request) {
  ServeOptions& serve = request.serve;
  if (request.prune) {
    PruneOptions prune = parse_prune_policy(*request.prune);
    prune.store = serve.store;
    prune.jobs = serve.jobs;
    serve.chores.push_back(prune_chore(std::move(prune)));
  }
  if (request.scrub_rate) serve.chores.push_back(scrub_chore(serve.store, *request.scrub_rate, serve.jobs));
  if (request.compress) serve.chores.push_back(compress_chore(serve.store, serve.jobs));
}

int body(Program& program) {
  Request request;
  declare(program.line(), request);
  program.add_jobs_option();
  program.add_metrics_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  const Address address = parse_address(only_operand(program, *operands, "STORE"));
  if (address.selector.kind != Selector::Kind::none)
    throw usage_error(program, "a whole STORE is served, without @STEP");
  ServeOptions& serve_options = request.serve;
  serve_options.store = address.store;
  serve_options.jobs = program.jobs();
  if (!serve_options.from.empty()) serve_options.queue_password = environment_text("REDISCLI_AUTH").value_or("");
  if (!serve_options.replicas.empty()) serve_options.peer.rsh = remote_shell(request.rsh);
  serve_options.peer.jobs = program.jobs();
  add_chores(request);

  ServiceNotice notice;
  ServerMetrics metrics(program.metrics_file().value_or(std::string()), address.store);
  Report report = program.report("ckpt-serve/1");
  report.header({{"store", address.store}});
  Observer observer(program, report, metrics, notice);
  program.output().flush();
  serve(serve_options, observer);
  notice.stopping();
  metrics.write(true);
  report.summary({});
  return exit_done;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-serve",
              .synopsis = {"[options] STORE"},
              .summary = "Makes durable what others handed over: drains spools and queues into a store.",
              .exits = exit_table("nothing is staged (with --until-idle)", "")},
             argc, argv, body);
}

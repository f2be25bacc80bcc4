// SPDX-License-Identifier: Apache-2.0
// ckpt-save: saves files as one shard of a checkpoint, at once or in the background, and prints the checkpoint's
// address.
#include <fmt/format.h>
#include <sys/stat.h>
#include <ckpt/address.hpp>
#include <ckpt/save.hpp>
#include <ckpt/stage.hpp>

#include <ctime>

#include "cli/metrics_file.hpp"
#include "cli/program.hpp"
#include "cli/worker.hpp"
#include "save_options.hpp"

namespace ckpt::cli {
namespace {

void print_report(Program& program, const std::string& address, const SaveReport& saved) {
  Report report = program.report("ckpt-save/1");
  report.header({{"store", address.substr(0, address.rfind('@'))}});
  if (saved.state != SaveState::skipped) report.line(address);
  report.record({"save",
                 {{"address", address},
                  {"step", saved.step},
                  {"state", std::string(to_string(saved.state))},
                  {"id", text_or_none(saved.id)},
                  {"attempt", saved.attempt},
                  {"rank", std::uint64_t{saved.rank}},
                  {"world_size", std::uint64_t{saved.world_size}},
                  {"unchanged", saved.unchanged},
                  {"suspect", saved.suspect},
                  {"files", saved.files},
                  {"tensors", saved.tensors},
                  {"raw_bytes", saved.raw_bytes},
                  {"stored_bytes", saved.stored_bytes},
                  {"seconds", saved.seconds},
                  {"write_seconds", saved.write_seconds},
                  {"commit_seconds", saved.commit_seconds},
                  {"reason", text_or_none(saved.reason)},
                  {"door", FieldValue()},
                  {"how", FieldValue()}}});
  report.summary({{"saved", std::uint64_t{saved.state == SaveState::skipped ? 0U : 1U}}});
}

void write_metrics(const std::string& path, const std::string& store, const SaveReport& saved) {
  const std::string labels = MetricsFile::label("store", store);
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  MetricsFile metrics;
  metrics.gauge("ckpt_save_last_success_timestamp_seconds", "When the last save succeeded.",
                number(std::uint64_t(std::time(nullptr))), labels);
  metrics.gauge("ckpt_save_step", "The step that was saved.", number(saved.step), labels);
  metrics.gauge("ckpt_save_durable", "1 if the checkpoint is complete with it.",
                saved.state == SaveState::durable || saved.state == SaveState::verified ? 1 : 0, labels);
  metrics.gauge("ckpt_save_raw_bytes", "Bytes read.", number(saved.raw_bytes), labels);
  metrics.gauge("ckpt_save_stored_bytes", "Bytes stored.", number(saved.stored_bytes), labels);
  metrics.gauge("ckpt_save_seconds", "How long the save took.", saved.seconds, labels);
  metrics.write(path);
}

void print_staged(Program& program, const std::string& address, const StageReport& staged) {
  Report report = program.report("ckpt-save/1");
  report.header({{"store", text_or_none(address.substr(0, address.rfind('@')))}});
  const bool is_accepted = staged.state != SaveState::skipped && staged.state != SaveState::failed;
  if (is_accepted) report.line(address);
  FieldValue attempt;
  if (staged.attempt) attempt = *staged.attempt;
  report.record({"save",
                 {{"address", address},
                  {"step", staged.step},
                  {"state", std::string(to_string(staged.state))},
                  {"id", text_or_none(staged.id)},
                  {"attempt", attempt},
                  {"rank", std::uint64_t{staged.rank}},
                  {"world_size", std::uint64_t{staged.world_size}},
                  {"unchanged", false},
                  {"suspect", false},
                  {"files", staged.files},
                  {"tensors", FieldValue()},
                  {"raw_bytes", staged.raw_bytes},
                  {"stored_bytes", FieldValue()},
                  {"seconds", staged.seconds},
                  {"write_seconds", FieldValue()},
                  {"commit_seconds", FieldValue()},
                  {"reason", text_or_none(staged.reason)},
                  {"door", text_or_none(staged.door)},
                  {"how", text_or_none(staged.how)}}});
  report.summary({{"saved", std::uint64_t{is_accepted ? 1U : 0U}}});
}

void write_stage_metrics(const std::string& path, const std::string& store, const StageReport& staged) {
  const std::string labels = MetricsFile::label("store", store);
  MetricsFile metrics;
  metrics.gauge("ckpt_stage_last_timestamp_seconds", "When a state was last handed over.",
                static_cast<double>(std::time(nullptr)), labels);
  metrics.gauge("ckpt_stage_step", "Its step.", static_cast<double>(staged.step), labels);
  metrics.gauge("ckpt_stage_skipped", "1 if it was skipped.", staged.state == SaveState::skipped ? 1 : 0, labels);
  metrics.gauge("ckpt_stage_raw_bytes", "Its bytes.", static_cast<double>(staged.raw_bytes), labels);
  metrics.gauge("ckpt_stage_seconds", "How long the caller waited until it was staged.", staged.seconds, labels);
  metrics.write(path);
}

int save_now(Program& program, const SaveOptions& options) {
  const SaveReport saved = save(options, program.monitor());
  print_report(program, address_of(options.store, saved.step), saved);
  if (saved.state == SaveState::skipped)
    program.messages().warning("skipped, as another rank decided: " + saved.reason);
  if (program.metrics_file()) write_metrics(*program.metrics_file(), options.store, saved);
  return exit_done;
}

/// It's accepted, whatever becomes of the worker.
void leave_to_worker(Program& program, const StageOptions& options, const std::string& spool) {
  try {
    start_worker({.store = options.save.store, .spool = spool, .jobs = options.save.jobs});
  } catch (const Error& error) {
    program.messages().warning(fmt::format("staged, but {}", error.what()));
    program.messages().hint("ckpt-wait, ckpt-serve and the next save --detach start one, too");
  }
}

/// The answer to --durable.
int tell_outcome(Program& program, const StageReport& staged) {
  if (staged.state == SaveState::failed) {
    program.messages().error("a server took it and couldn't store it: " + staged.reason);
    return exit_trouble;
  }
  if (staged.state != SaveState::staged) return exit_done;
  program.messages().error(staged.reason);
  return exit_temporary;
}

int save_in_background(Program& program, const StageOptions& options) {
  const StageReport staged = stage(options, program.monitor());
  if (staged.state == SaveState::skipped) {
    program.messages().warning("skipped: " + staged.reason);
  } else {
    program.messages().note(fmt::format("{} by {} in {:.3f} s", to_string(staged.state), staged.how, staged.seconds));
  }
  print_staged(program, address_of(options.save.store, staged.step), staged);
  if (program.metrics_file()) write_stage_metrics(*program.metrics_file(), options.save.store, staged);
  if (options.to.empty() && staged.state != SaveState::skipped) leave_to_worker(program, options, staged.door);
  return options.until_durable ? tell_outcome(program, staged) : exit_done;
}

int body(Program& program) {
  const auto request = parse_save_request(program);
  if (!request) return exit_done;
  if (request->umask) ::umask(*request->umask);
  const bool is_direct = !request->detach && request->stage.to.empty();
  return is_direct ? save_now(program, request->stage.save) : save_in_background(program, request->stage);
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-save",
              .synopsis = {"[options] SOURCE... STORE@STEP", "--to=URL [options] SOURCE... @STEP"},
              .summary = "Saves files and directories as a checkpoint, or as one shard of it, and prints its address.",
              .exits = exit_table("saved, staged or skipped, or there already with the same content", "")},
             argc, argv, body);
}

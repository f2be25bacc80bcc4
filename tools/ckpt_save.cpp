// SPDX-License-Identifier: Apache-2.0
// ckpt-save: saves files as one shard of a checkpoint and prints the checkpoint's address.
#include <fmt/format.h>
#include <sys/stat.h>
#include <ckpt/address.hpp>
#include <ckpt/save.hpp>

#include <algorithm>
#include <array>
#include <ctime>
#include <optional>

#include "cli/environment.hpp"
#include "cli/metrics_file.hpp"
#include "cli/name_list.hpp"
#include "cli/program.hpp"

namespace ckpt::cli {
namespace {

struct Request {
  SaveOptions save;
  std::optional<std::uint32_t> world_size;
  std::optional<std::string> files_from;
  std::optional<std::uint32_t> umask;
  bool no_create = false;
  bool no_check = false;
};

void set_meta(std::map<std::string, std::string>& meta, const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' isn't KEY=VALUE", text));
  }
  meta[text.substr(0, equals)] = text.substr(equals + 1);
}

void set_base(SaveOptions& save, const std::string& text) {
  save.base = text == "auto" ? BaseChoice::automatic : text == "none" ? BaseChoice::none : BaseChoice::step;
  if (save.base == BaseChoice::step) save.base_step = parse_number(text, 0, max_step);
}

std::string shown_base(const SaveOptions& save) {
  switch (save.base) {
    case BaseChoice::automatic: return "auto";
    case BaseChoice::none: return "none";
    case BaseChoice::step: return std::to_string(save.base_step);
  }
  return {};
}

constexpr std::array<std::pair<std::string_view, Encode>, 3> encodings = {
    {{"raw", Encode::raw}, {"fast", Encode::fast}, {"best", Encode::best}}};

Encode parse_encode(const std::string& text) {
  for (const auto& [name, encode] : encodings) {
    if (name == text) return encode;
  }
  throw Error(Errc::invalid_argument, fmt::format("'{}' is none of raw, fast, best", text));
}

std::string_view name_of(Encode encode) {
  for (const auto& [name, value] : encodings) {
    if (value == encode) return name;
  }
  return {};
}

std::string shown(const std::map<std::string, std::string>& meta) {
  std::string text;
  for (const auto& [key, value] : meta) text += (text.empty() ? "" : ",") + key + "=" + value;
  return text;
}

void declare(CommandLine& line, Request& request) {
  SaveOptions& save = request.save;
  line.section("What is saved");
  line.option("-C,--directory", "DIR", "store names as given, relative to DIR", save.directory);
  line.option("--files-from", "FILE", "more sources, one a line; with -0 ended by NUL", request.files_from);
  line.option("--name", "FILE", "the name under which '-', standard input, is stored", save.stdin_name);
  line.flag("--owner", "keep owner and group", save.owner);
  line.flag("--allow-malformed", "save a damaged file as plain bytes and mark the checkpoint suspect",
            save.allow_malformed);
  line.option(
      "--meta", "KEY=VALUE", "keep this with the checkpoint; may be repeated",
      [&save](const std::string& text) { set_meta(save.meta, text); }, [&save] { return shown(save.meta); });
  line.section("Which shard");
  line.option("--rank", "R", "this is the shard of rank R (default: 0)", save.rank);
  line.option("--world-size", "N", "of N shards in all (default: 1)", request.world_size, 1U);
  line.option("--attempt", "N", "the life of the job (default: the highest so far)", save.attempt);
  line.option("--resumed-from", "STEP", "retire what is newer and of a lower attempt", save.resumed_from);
  line.flag("--replace", "take the place of other content at this step", save.replace);
  line.section("How it is saved");
  line.option(
      "--base", "auto|none|STEP", "keep only the differences from this checkpoint",
      [&save](const std::string& text) { set_base(save, text); }, [&save] { return shown_base(save); });
  line.option(
      "--encode", "raw|fast|best", "how hard to look for a smaller form (default: fast)",
      [&save](const std::string& text) { save.encode = parse_encode(text); },
      [&save] { return std::string(name_of(save.encode)); });
  line.flag("--no-check", "believe what was encoded without decoding it", request.no_check);
  line.flag("--no-create", "a store that doesn't exist is an error", request.no_create);
  line.flag("--read-back", "read it again past the cache and check it before the commit", save.read_back);
  line.option(
      "--umask", "OCTAL", "permissions that the store's files don't get",
      [&request](const std::string& text) { request.umask = parse_octal(text, 0777); },
      [&request] { return request.umask ? fmt::format("{:03o}", *request.umask) : std::string(); });
}

void take_operands(Program& program, Request& request, std::vector<std::string> operands) {
  if (operands.empty()) throw usage_error(program, "no STORE@STEP given");
  const std::string target = operands.back();
  operands.pop_back();
  if (request.files_from) {
    const auto more = read_name_list(*request.files_from, program.record_end());
    operands.insert(operands.end(), more.begin(), more.end());
  }
  const Address address = parse_address(target);
  if (address.selector.kind != Selector::Kind::step) {
    throw usage_error(program, fmt::format("'{}' names no step to save as: it takes STORE@STEP", target));
  }
  if (operands.empty()) throw usage_error(program, fmt::format("nothing to save as '{}'", target));
  const bool from_stdin = std::ranges::find(operands, "-") != operands.end();
  if (from_stdin && request.save.stdin_name.empty()) {
    throw usage_error(program, "standard input ('-') needs a name: --name=FILE");
  }
  if (from_stdin && request.files_from == "-") throw usage_error(program, "standard input can't be list and data");
  request.save.store = address.store;
  request.save.step = address.selector.step;
  request.save.sources = std::move(operands);
}

void warn_of_world_size(Program& program, const Request& request) {
  if (request.world_size) return;
  const auto environment = environment_number("WORLD_SIZE", 0, UINT32_MAX);
  if (environment.value_or(1) <= 1) return;
  program.messages().warning(
      fmt::format("WORLD_SIZE is {} but --world-size isn't given: this saves a whole checkpoint, not a shard of one",
                  *environment));
  program.messages().hint("--rank=\"$RANK\" --world-size=\"$WORLD_SIZE\" saves one shard of several");
}

void print_report(Program& program, const std::string& address, const SaveReport& saved) {
  Report report = program.report("ckpt-save/1");
  report.header({{"store", address.substr(0, address.rfind('@'))}});
  report.line(address);
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
                  {"write_seconds", saved.write_seconds}}});
  report.summary({{"saved", std::uint64_t{1}}});
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

int body(Program& program) {
  Request request;
  declare(program.line(), request);
  program.add_jobs_option();
  program.add_metrics_option();
  auto operands = program.parse();
  if (!operands) return exit_done;
  take_operands(program, request, std::move(*operands));
  warn_of_world_size(program, request);
  if (request.umask) ::umask(*request.umask);
  SaveOptions& options = request.save;
  options.create = !request.no_create;
  options.check = !request.no_check;
  options.world_size = request.world_size.value_or(1);
  options.jobs = program.jobs();
  options.fixed_time = source_date_epoch();

  const SaveReport saved = save(options, program.monitor());
  print_report(program, address_of(options.store, saved.step), saved);
  if (program.metrics_file()) write_metrics(*program.metrics_file(), options.store, saved);
  return exit_done;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-save",
              .synopsis = {"[options] SOURCE... STORE@STEP"},
              .summary = "Saves files and directories as a checkpoint, or as one shard of it, and prints its address.",
              .exits = exit_table("saved, or there already with the same content", "")},
             argc, argv, body);
}

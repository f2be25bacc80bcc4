// SPDX-License-Identifier: Apache-2.0
// ckpt-restore: gives back a checkpoint's files bit for bit, or exports tensors, and prints the address it took.
#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/list.hpp>
#include <ckpt/restore.hpp>

#include <optional>
#include <utility>

#include "cli/program.hpp"
#include "peer_options.hpp"

namespace ckpt::cli {
namespace {

struct Request {
  Address from;
  std::optional<std::string> directory;
  std::optional<std::string> output;
  std::vector<std::string> tensors;
  std::optional<ExportFormat> as;
  std::string strip_prefix;
  bool full = false;
  Selection select;
  std::vector<std::string> replicas;
  std::optional<std::string> rsh;
  bool by_rank = false;
  bool force = false;
  bool fallback = false;
  bool allow_lossy = false;

  [[nodiscard]] bool exports() const { return full || as.has_value() || !tensors.empty(); }
  [[nodiscard]] bool to_stdout() const { return output == "-"; }
};

constexpr std::pair<std::string_view, ExportFormat> export_formats[] = {{"raw", ExportFormat::raw},
                                                                        {"npy", ExportFormat::npy},
                                                                        {"safetensors", ExportFormat::safetensors},
                                                                        {"pt", ExportFormat::pt},
                                                                        {"tar", ExportFormat::tar}};

ExportFormat export_format_of(const std::string& text) {
  for (const auto& [name, format] : export_formats) {
    if (name == text) return format;
  }
  throw Error(Errc::invalid_argument, fmt::format("'{}' is none of raw, npy, safetensors, pt, tar", text));
}

// The one suffix that stands for a file which torch.load reads, and nothing else does.
ExportFormat format_for(const std::string& output) {
  return output.ends_with(".pt") ? ExportFormat::pt : ExportFormat::safetensors;
}

std::string name_of(std::optional<ExportFormat> format) {
  for (const auto& [name, value] : export_formats) {
    if (value == format) return std::string(name);
  }
  return {};
}

void declare(CommandLine& line, Request& request) {
  line.section("What is restored");
  line.option("--file", "GLOB", "these files only; may be repeated", request.select.files);
  line.option("--rank", "R", "the shard of rank R only", request.select.rank);
  line.flag("--fallback", "if it's damaged, take the newest good checkpoint before it", request.fallback);
  line.flag("--allow-lossy", "also one that has lost values", request.allow_lossy);
  line.section("Tensors instead of files");
  line.option("--tensor", "GLOB", "export these tensors; may be repeated", request.tensors);
  line.flag("--full", "join the parts that shards hold: each tensor comes whole", request.full);
  line.option(
      "--as", "FORMAT", "raw, npy, safetensors, pt or tar (default: pt for FILE.pt, else safetensors)",
      [&request](const std::string& text) { request.as = export_format_of(text); },
      [&request] { return name_of(request.as); });
  line.option("--strip-prefix", "P", "take P from the front of exported names", request.strip_prefix);
  line.option("--from", "STORE",
              "a replica for what is damaged here, also HOST:STORE and rclone:REMOTE:PATH; may be repeated",
              request.replicas);
  declare_rsh(line, request.rsh);
  line.section("Where it goes");
  line.option("-o,--output", "FILE", "one file, or the export; '-' is standard output", request.output);
  line.flag("--by-rank", "each shard into a directory of its own, DEST/rank-00000", request.by_rank);
  line.flag("-f,--force", "replace files of other content that are in the way", request.force);
}

void take_operands(Program& program, Request& request, const std::vector<std::string>& operands) {
  if (operands.empty()) throw usage_error(program, "no STORE[@STEP] given");
  const std::size_t most = request.output ? 1 : 2;
  if (operands.size() > most) {
    throw usage_error(program, request.output && operands.size() == 2
                                   ? "both DEST and --output given"
                                   : fmt::format("operand '{}' is one too many", operands[most]));
  }
  request.from = parse_address(operands[0]);
  if (operands.size() == 2) request.directory = operands[1];
  if (!request.output && !request.directory) throw usage_error(program, "no DEST or --output given");
  if (request.directory && request.directory->empty()) throw usage_error(program, "DEST is empty");
  if (request.exports() && !request.output) throw usage_error(program, "tensors need --output=FILE, not DEST");
  if (request.exports() && !request.replicas.empty())
    throw usage_error(program, "--from is for files, not for tensors");
  if (request.exports() && request.fallback) throw usage_error(program, "--fallback is for files, not for tensors");
  if (!request.exports() && !request.strip_prefix.empty()) throw usage_error(program, "--strip-prefix needs --tensor");
  if (request.by_rank && !request.directory) throw usage_error(program, "--by-rank needs DEST");
  if (!request.to_stdout()) return;
  if (program.format() != Format::human) throw usage_error(program, "--output=- leaves no place for a report");
  if (is_terminal(1)) {
    throw Error(Errc::invalid_argument, "standard output is a terminal: nothing is written to it")
        .with_hint("--output=FILE, or a pipe");
  }
}

bool step_names(const std::string& store, std::uint64_t step, const std::string& id) {
  try {
    return find_checkpoint({.store = store, .selector = {.kind = Selector::Kind::step, .step = step}}).id == id;
  } catch (const Error&) {
    return false;
  }
}

// A retired checkpoint's step may have been taken by another: its id still names it.
std::string restored_address(const Address& from, std::uint64_t step, const std::string& id) {
  const bool by_id = from.selector.kind == Selector::Kind::id;
  if (!by_id || step_names(from.store, step, id)) return address_of(from.store, step);
  return to_string(Address{from.store, {.kind = Selector::Kind::id, .id_prefix = id}});
}

struct Result {
  std::string address;
  std::uint64_t step = 0;
  std::string id;
  FieldValue files, unchanged, tensors, seconds;
  std::uint64_t bytes = 0;
};

Result restore_files(Program& program, const Request& request) {
  RestoreOptions options;
  options.from = request.from;
  options.directory = request.directory.value_or("");
  if (request.to_stdout()) options.output_fd = 1;
  if (!request.to_stdout()) options.output = request.output.value_or("");
  options.select = request.select;
  options.replicas = request.replicas;
  if (!request.replicas.empty()) options.peer.rsh = remote_shell(request.rsh);
  options.by_rank = request.by_rank;
  options.force = request.force;
  options.fallback = request.fallback;
  options.allow_lossy = request.allow_lossy;
  options.jobs = program.jobs();
  const RestoreReport done = restore(options, program.monitor());
  for (const auto& [step, reason] : done.skipped) {
    program.messages().warning(fmt::format("{} passed over: {}", address_of(request.from.store, step), reason));
  }
  return {restored_address(request.from, done.step, done.id),
          done.step,
          done.id,
          done.files,
          done.unchanged,
          {},
          done.seconds,
          done.bytes};
}

Result export_chosen(Program& program, const Request& request) {
  ExportOptions options;
  options.from = request.from;
  options.tensors = request.tensors.empty() ? std::vector<std::string>{"*"} : request.tensors;
  options.as = request.as.value_or(format_for(*request.output));
  options.strip_prefix = request.strip_prefix;
  options.select = request.select;
  options.full = request.full;
  if (request.to_stdout()) options.output_fd = 1;
  if (!request.to_stdout()) options.output = *request.output;
  options.force = request.force;
  options.allow_lossy = request.allow_lossy;
  options.jobs = program.jobs();
  const ExportReport done = export_tensors(options, program.monitor());
  return {restored_address(request.from, done.step, done.id), done.step, done.id, {}, {}, done.tensors, {}, done.bytes};
}

int body(Program& program) {
  Request request;
  declare(program.line(), request);
  program.add_jobs_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  take_operands(program, request, *operands);

  const Result result = request.exports() ? export_chosen(program, request) : restore_files(program, request);
  if (request.to_stdout()) return exit_done;
  Report report = program.report("ckpt-restore/1");
  report.header({{"store", request.from.store}});
  report.line(result.address);
  report.record({"restore",
                 {{"address", result.address},
                  {"step", result.step},
                  {"id", result.id},
                  {"files", result.files},
                  {"unchanged", result.unchanged},
                  {"tensors", result.tensors},
                  {"bytes", result.bytes},
                  {"seconds", result.seconds}}});
  report.summary({{"restored", std::uint64_t{1}}});
  return exit_done;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-restore",
              .synopsis = {"[options] STORE[@STEP] DEST", "[options] -o FILE STORE[@STEP]"},
              .summary = "Gives back the files of a checkpoint bit for bit, or exports tensors, and prints the address "
                         "it took. Without @STEP that's the latest.",
              .exits = exit_table("restored, every byte checked", "")},
             argc, argv, body);
}

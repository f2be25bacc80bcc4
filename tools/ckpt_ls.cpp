// SPDX-License-Identifier: Apache-2.0
// ckpt-ls: lists checkpoints, sets in the making, files, tensors and checksums, or answers one question.
#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/list.hpp>

#include <optional>

#include "cli/program.hpp"
#include "ls_records.hpp"

namespace ckpt::cli {
namespace {

struct Request {
  Address address;
  bool pending = false;
  bool retired = false;
  bool tensors = false;
  bool stats = false;
  std::vector<std::string> patterns;
  std::vector<std::string> spools;
  bool sums = false;
  std::optional<std::string> get;
  bool exists = false;
};

void declare(CommandLine& line, Request& request) {
  line.section("What is listed");
  line.flag("--pending", "saves that aren't durable", request.pending);
  line.option("--spool", "DIR", "with --pending: look here too; may be repeated", request.spools);
  line.flag("--retired", "checkpoints that a resumed job left behind", request.retired);
  line.flag("--tensors", "the tensors of a checkpoint", request.tensors);
  line.option("--tensor", "GLOB", "with --tensors: these only; may be repeated", request.patterns);
  line.flag("--stats", "with --tensors: min, max, mean, norm, NaN, Inf", request.stats);
  line.flag("--sums", "checksums of the files, for xxh128sum -c", request.sums);
  line.section("One answer");
  line.option("--get", "KEY", "one field of a checkpoint's record, or a --meta value", request.get);
  line.flag("--exists", "no output: exit 0 if there is a good checkpoint, 1 if none yet", request.exists);
}

void take_operands(Program& program, Request& request, const std::vector<std::string>& operands) {
  request.address = parse_address(only_operand(program, operands, "STORE[@STEP]"));
  const int modes = int{request.pending} + int{request.retired} + int{request.tensors} + int{request.sums} +
                    int{request.get.has_value()} + int{request.exists};
  if (modes > 1) {
    throw usage_error(program, "only one of --pending, --retired, --tensors, --sums, --get and --exists");
  }
  if ((request.stats || !request.patterns.empty()) && !request.tensors) {
    throw usage_error(program, "--stats and --tensor need --tensors");
  }
  if (!request.spools.empty() && !request.pending) throw usage_error(program, "--spool needs --pending");
  const bool has_step = request.address.selector.kind != Selector::Kind::none;
  if (has_step && (request.pending || request.retired)) {
    throw usage_error(program, "--pending and --retired take a store, without @STEP");
  }
}

template <class Info>
int print_list(Program& program, const std::string& address, const std::vector<Info>& list) {
  Report report = program.report("ckpt-ls/1");
  report.header({{"address", address}});
  if (report.is_human()) {
    print_table(report, list, program.colors_output());
    return exit_done;
  }
  for (const Info& info : list) report.record(record_of(info));
  report.summary({{"records", std::uint64_t{list.size()}}});
  return exit_done;
}

int print_pending(Program& program, const std::string& address, const PendingListing& listing) {
  for (const std::string& spool : listing.unseen)
    program.messages().warning(fmt::format("{} can't be looked into from here", spool));
  return print_list(program, address, listing.saves);
}

/// What the caller may not read is one failed item among many.
int print_checkpoints(Program& program, const std::string& address, const std::vector<CheckpointInfo>& list) {
  int status = print_list(program, address, list);
  for (const CheckpointInfo& info : list) {
    if (info.state != "unreadable") continue;
    program.messages().error(info.state_detail);
    status = exit_trouble;
  }
  return status;
}

FieldValue value_of(const CheckpointInfo& info, const std::string& key) {
  for (const Field& field : record_of(info).fields) {
    if (field.key == key) return field.value;
  }
  const auto found = info.meta.find(key.starts_with("meta.") ? key.substr(5) : key);
  if (found != info.meta.end()) return found->second;
  throw Error(Errc::not_found, fmt::format("step {} has no field and no metadata '{}'", info.step, key))
      .with_hint("--json shows them all");
}

int print_value(Program& program, const Address& address, const std::string& key) {
  const FieldValue value = value_of(find_checkpoint(address), key);
  Report report = program.report("ckpt-ls/1");
  report.header({{"address", to_string(address)}});
  report.line(plain_text(value));
  // A single value is its own line in tsv as well.
  if (report.format() == Format::tsv) report.record({"value", {{"value", value}}});
  if (report.format() == Format::json) report.record({"value", {{"key", key}, {"value", value}}});
  report.summary({{"records", std::uint64_t{1}}});
  return exit_done;
}

int body(Program& program) {
  Request request;
  declare(program.line(), request);
  program.add_jobs_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  take_operands(program, request, *operands);

  const Address& address = request.address;
  const std::string& text = operands->front();
  if (request.exists) return has_good_checkpoint(address) ? exit_done : exit_no;
  if (request.get) return print_value(program, address, *request.get);
  if (request.pending) return print_pending(program, text, list_pending(address.store, request.spools));
  if (request.retired) return print_checkpoints(program, text, list_retired(address.store));
  if (request.sums) return print_list(program, text, file_sums(address, program.jobs(), program.monitor()));
  if (request.tensors) {
    const TensorQuery query{address, request.patterns, request.stats, program.jobs()};
    return print_list(program, text, list_tensors(query, program.monitor()));
  }
  if (address.selector.kind != Selector::Kind::none) return print_list(program, text, list_files(address));
  return print_checkpoints(program, text, list_checkpoints(address.store));
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-ls",
              .synopsis = {"[options] STORE[@STEP]"},
              .summary = "Lists the checkpoints of a store; with @STEP the files of that checkpoint.",
              .exits = exit_table("listed; with --exists: there is a good checkpoint",
                                  "with --exists: no good checkpoint yet, or no store")},
             argc, argv, body);
}

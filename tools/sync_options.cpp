// SPDX-License-Identifier: Apache-2.0
#include "sync_options.hpp"

#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/error.hpp>

#include <algorithm>

#include "cli/name_list.hpp"
#include "peer_options.hpp"

namespace ckpt::cli {
namespace {

/// rsync's RATE: kibibytes, unless a letter says otherwise.
std::uint64_t parse_rsync_rate(const std::string& text) {
  const bool is_bare = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos;
  return parse_size(is_bare ? text + "K" : text);
}

/// Step and id from records of `ckpt-ls --format=tsv`.
std::vector<SyncStreamOptions::Known> read_known(const std::string& file) {
  std::vector<SyncStreamOptions::Known> known;
  for (const std::string& line : read_name_list(file, '\n')) {
    const std::size_t state = line.find('\t');
    const std::size_t id = state == std::string::npos ? state : line.find('\t', state + 1);
    if (id == std::string::npos)
      throw Error(Errc::malformed, fmt::format("'{}' holds a line that isn't ckpt-ls's", file));
    const std::string text = line.substr(id + 1, line.find('\t', id + 1) - id - 1);
    if (text.empty()) continue;  // a checkpoint that can't be read there
    known.push_back({.step = parse_number(line.substr(0, state), 0, max_step), .id = text});
  }
  return known;
}

struct Spelling {
  std::optional<std::string> rsh;
  std::optional<std::string> have;
  std::optional<double> timeout;
};

void declare(CommandLine& line, SyncRequest& request, Spelling& spelling) {
  SyncOptions& sync = request.sync;
  line.section("What is brought alike");
  line.flag("--replace", "a step that has other content there gives way", sync.replace);
  line.flag("--delete", "remove there what isn't here, by ckpt-prune's rules", sync.remove);
  line.flag("--gather", "shards of sets that aren't complete travel too, and sets are completed", sync.gather);
  line.option("--min-copies", "N", "enough if N destinations hold it all (default: each)", sync.min_copies,
              std::uint64_t{1});
  line.option("--have", "FILE", "with DST '-': the other side's ckpt-ls --format=tsv", spelling.have);
  line.flag("--watch", "stay, and send each checkpoint as it's committed; TERM ends it once all is sent",
            request.watch);
  line.option(
      "--until-pid", "PID", "with --watch: end once this process has ended and all is sent",
      [&request](const std::string& text) { request.until_pid = static_cast<int>(parse_number(text, 1, INT32_MAX)); },
      [&request] { return request.until_pid ? std::to_string(*request.until_pid) : std::string(); });
  line.section("How");
  declare_rsh(line, spelling.rsh);
  line.flag("-n,--dry-run", "say what would be done", sync.dry_run);
  line.flag("-i,--itemize-changes", "print a line for each checkpoint", request.itemize);
  line.flag("--stats", "print counts and bytes in the end", request.stats);
  line.option(
      "--bwlimit", "RATE", "send no more than this in a second; KiB without a letter",
      [&sync](const std::string& text) { sync.peer.bytes_per_second = parse_rsync_rate(text); },
      [&sync] { return std::to_string(sync.peer.bytes_per_second); });
  line.option(
      "--timeout", "SEC", "how long the other side may be silent (default: 60; 0: for ever)",
      [&spelling](const std::string& text) { spelling.timeout = parse_duration(text); },
      [&spelling] { return spelling.timeout ? number_text(*spelling.timeout) : std::string(); });
  line.flag("--server", "the far end of a remote shell: answer on stdin and stdout for STORE", request.server);
}

/// STORE[@STEP], of which STORE may be [USER@]HOST:STORE or rclone:REMOTE:PATH. An '@' before the last '/' or ':' is no
/// step's, except in "STORE@id:PREFIX": a store PREFIX of a user STORE on a host "id" is written "STORE@id:./PREFIX".
void take_source(SyncRequest& request, const std::string& text) {
  request.source_text = text;
  if (text == "-") {
    request.sync.sources = {text};
    return;
  }
  const auto has_host = [](const std::string& name) { return name.find('/') > name.find(':'); };
  const std::size_t colon = text.find(':');
  const Address whole = parse_address(text);
  const bool is_remote =
      !text.starts_with("rclone:") && has_host(whole.selector.kind == Selector::Kind::id ? whole.store : text);
  const Address address = parse_address(is_remote ? text.substr(colon + 1) : text);
  request.sync.sources = {is_remote ? text.substr(0, colon + 1) + address.store : address.store};
  request.sync.which = address.selector;
}

/// In seconds. A server is asked when there's something to ask; and a stream's other end, which verifies and syncs,
/// can't say that it lives.
double default_timeout(const SyncRequest& request) {
  if (request.server) return 600;
  const bool is_stream = request.sync.destinations.front() == "-" ||
                         (!request.sync.sources.empty() && request.sync.sources.front() == "-");
  return is_stream ? 0 : 60;
}

void take_operands(const Program& program, SyncRequest& request, const Spelling& spelling,
                   std::vector<std::string> operands) {
  SyncOptions& sync = request.sync;
  if (request.server) {
    if (operands.size() != 1) throw usage_error(program, "--server takes one STORE");
    sync.destinations = std::move(operands);
    return;
  }
  if (operands.size() < 2) throw usage_error(program, "it takes a source and a destination");
  if (sync.gather) {
    sync.destinations = {operands.back()};
    operands.pop_back();
    sync.sources = std::move(operands);
    request.source_text = sync.sources.front();
  } else {
    take_source(request, operands.front());
    sync.destinations.assign(operands.begin() + 1, operands.end());
  }
  const bool streams = std::ranges::find(sync.destinations, "-") != sync.destinations.end();
  const bool from_stream = std::ranges::find(sync.sources, "-") != sync.sources.end();
  if ((streams || from_stream) &&
      (sync.destinations.size() != 1 || sync.sources.size() != 1 || sync.gather || sync.remove))
    throw usage_error(program, "a stream has one end here, and brings checkpoints only");
  if (streams && from_stream) throw usage_error(program, "from a stream to a stream there's nothing to do");
  if (request.watch && (streams || from_stream || sync.gather || sync.dry_run || sync.min_copies))
    throw usage_error(program, "--watch follows one store, to stores");
  if (request.until_pid && !request.watch) throw usage_error(program, "--until-pid needs --watch");
  if (spelling.have && !streams) throw usage_error(program, "--have needs the destination '-'");
}

}  // namespace

std::optional<SyncRequest> parse_sync_request(Program& program) {
  SyncRequest request;
  Spelling spelling;
  declare(program.line(), request, spelling);
  program.add_jobs_option();
  program.add_progress_letter('P');  // rsync's -P: what is partial is always kept here
  auto operands = program.parse();
  if (!operands) return std::nullopt;
  take_operands(program, request, spelling, std::move(*operands));
  request.sync.peer.rsh = remote_shell(spelling.rsh);
  if (spelling.have) request.have = read_known(*spelling.have);
  request.sync.peer.jobs = program.jobs();
  request.sync.peer.timeout_seconds = spelling.timeout.value_or(default_timeout(request));
  return request;
}

}  // namespace ckpt::cli

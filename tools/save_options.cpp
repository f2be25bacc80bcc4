// SPDX-License-Identifier: Apache-2.0
#include "save_options.hpp"

#include <fmt/format.h>
#include <ckpt/address.hpp>

#include <algorithm>
#include <array>

#include "cli/environment.hpp"
#include "cli/name_list.hpp"

namespace ckpt::cli {
namespace {

/// What is said in other words than the library's.
struct Spelling {
  std::optional<std::uint32_t> world_size;
  std::optional<std::string> files_from;
  bool no_create = false;
  bool no_check = false;
  bool durable = false;
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

template <class T>
using Choices = std::array<std::pair<std::string_view, T>, 3>;

constexpr Choices<Encode> encodings = {{{"raw", Encode::raw}, {"fast", Encode::fast}, {"best", Encode::best}}};
constexpr Choices<WhenFull> when_full_choices = {
    {{"wait", WhenFull::wait}, {"fail", WhenFull::fail}, {"skip", WhenFull::skip}}};

template <class T>
T choose(const Choices<T>& choices, const std::string& text) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (name == text) return value;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw Error(Errc::invalid_argument, fmt::format("'{}' is none of {}", text, names));
}

template <class T>
std::string name_in(const Choices<T>& choices, T wanted) {
  for (const auto& [name, value] : choices) {
    if (value == wanted) return std::string(name);
  }
  return {};
}

/// With a unit it's bytes, without a count of saves.
void set_limit(StagedLimit& limit, const std::string& text) {
  const bool is_count = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  limit = {};
  if (is_count) {
    limit.saves = parse_number(text, 1, UINT32_MAX);
  } else {
    limit.bytes = parse_size(text);
  }
}

std::string shown(const StagedLimit& limit) {
  if (limit.saves) return std::to_string(*limit.saves);
  return limit.bytes ? std::to_string(*limit.bytes) + " bytes" : std::string();
}

std::string shown(const std::map<std::string, std::string>& meta) {
  std::string text;
  for (const auto& [key, value] : meta) text += (text.empty() ? "" : ",") + key + "=" + value;
  return text;
}

void declare(CommandLine& line, SaveRequest& request, Spelling& spelling) {
  StageOptions& stage = request.stage;
  SaveOptions& save = stage.save;
  line.section("What is saved");
  line.option("-C,--directory", "DIR", "store names as given, relative to DIR", save.directory);
  line.option("--files-from", "FILE", "more sources, one a line; with -0 ended by NUL", spelling.files_from);
  line.option("--name", "FILE", "the name under which '-', standard input, is stored", save.stdin_name);
  line.flag("--owner", "keep owner and group", save.owner);
  line.flag("--allow-malformed", "save a damaged file as plain bytes and mark the checkpoint suspect",
            save.allow_malformed);
  line.option(
      "--meta", "KEY=VALUE", "keep this with the checkpoint; may be repeated",
      [&save](const std::string& text) { set_meta(save.meta, text); }, [&save] { return shown(save.meta); });
  line.section("Which shard");
  line.option("--rank", "R", "this is the shard of rank R (default: 0)", save.rank);
  line.option("--world-size", "N", "of N shards in all (default: 1)", spelling.world_size, 1U);
  line.option("--attempt", "N", "the life of the job (default: the highest so far)", save.attempt);
  line.option("--resumed-from", "STEP", "retire what is newer and of a lower attempt", save.resumed_from);
  line.flag("--replace", "take the place of other content at this step", save.replace);
  line.section("How it is saved");
  line.option(
      "--base", "auto|none|STEP", "keep only the differences from this checkpoint",
      [&save](const std::string& text) { set_base(save, text); }, [&save] { return shown_base(save); });
  line.option(
      "--encode", "raw|fast|best", "how hard to look for a smaller form (default: fast)",
      [&save](const std::string& text) { save.encode = choose(encodings, text); },
      [&save] { return name_in(encodings, save.encode); });
  line.flag("--no-check", "believe what was encoded without decoding it", spelling.no_check);
  line.flag("--no-create", "a store that doesn't exist is an error", spelling.no_create);
  line.flag("--read-back", "read it again past the cache and check it before the commit", save.read_back);
  line.option(
      "--umask", "OCTAL", "permissions that the store's files don't get",
      [&request](const std::string& text) { request.umask = parse_octal(text, 0777); },
      [&request] { return request.umask ? fmt::format("{:03o}", *request.umask) : std::string(); });
  line.section("In the background");
  line.flag("--detach", "end once it's staged: a worker makes it durable", request.detach);
  line.flag("--consume", "move the input away, or remove it once it's staged", stage.consume);
  line.option("--spool", "DIR", "stage in DIR (default: STORE/.spool/HOST)", stage.spool);
  line.option("--to", "URL", "stage in the queue redis://HOST:PORT[/DB]?key=NAME; more: in turn", stage.to);
  line.flag("--durable", "with --to: wait until a server has stored it", spelling.durable);
  line.option(
      "--max-staged", "SIZE|N", "no more than this may be staged at once",
      [&stage](const std::string& text) { set_limit(stage.limit, text); }, [&stage] { return shown(stage.limit); });
  line.option(
      "--when-full", "wait|fail|skip", "what to do then (default: wait)",
      [&stage](const std::string& text) { stage.when_full = choose(when_full_choices, text); },
      [&stage] { return name_in(when_full_choices, stage.when_full); });
  line.option(
      "--timeout", "SEC", "wait no longer than this for room or an answer",
      [&stage](const std::string& text) { stage.timeout_seconds = parse_duration(text); },
      [&stage] { return number_text(stage.timeout_seconds); });
}

void require_background(const Program& program, const SaveRequest& request, const Spelling& spelling) {
  const StageOptions& stage = request.stage;
  if (!stage.to.empty() && (request.detach || !stage.spool.empty()))
    throw usage_error(program, "a save goes to a spool or --to a queue");
  if (spelling.durable && stage.to.empty()) throw usage_error(program, "--durable needs --to");
  if (request.detach || !stage.to.empty()) return;
  const bool waits = stage.when_full != WhenFull::wait || stage.timeout_seconds > 0;
  if (stage.consume || !stage.spool.empty() || stage.limit.bytes || stage.limit.saves || waits)
    throw usage_error(program, "--consume, --spool, --max-staged, --when-full and --timeout need --detach");
}

/// "@1000": the store is the server's.
std::uint64_t parse_bare_step(const Program& program, const std::string& target) {
  if (!target.starts_with('@')) {
    throw usage_error(program, fmt::format("'{}' names a store, which the server knows: with --to it's @STEP", target));
  }
  return parse_number(target.substr(1), 0, max_step);
}

void take_operands(Program& program, SaveRequest& request, const Spelling& spelling,
                   std::vector<std::string> operands) {
  SaveOptions& save = request.stage.save;
  if (operands.empty()) throw usage_error(program, "no STORE@STEP given");
  const std::string target = operands.back();
  operands.pop_back();
  if (spelling.files_from) {
    const auto more = read_name_list(*spelling.files_from, program.record_end());
    operands.insert(operands.end(), more.begin(), more.end());
  }
  if (request.stage.to.empty()) {
    const Address address = parse_address(target);
    if (address.selector.kind != Selector::Kind::step) {
      throw usage_error(program, fmt::format("'{}' names no step to save as: it takes STORE@STEP", target));
    }
    save.store = address.store;
    save.step = address.selector.step;
  } else {
    save.step = parse_bare_step(program, target);
  }
  if (operands.empty()) throw usage_error(program, fmt::format("nothing to save as '{}'", target));
  const bool from_stdin = std::ranges::find(operands, "-") != operands.end();
  if (from_stdin && save.stdin_name.empty()) {
    throw usage_error(program, "standard input ('-') needs a name: --name=FILE");
  }
  if (from_stdin && spelling.files_from == "-") throw usage_error(program, "standard input can't be list and data");
  save.sources = std::move(operands);
}

void warn_of_world_size(Program& program) {
  const auto environment = environment_number("WORLD_SIZE", 0, UINT32_MAX);
  if (environment.value_or(1) <= 1) return;
  program.messages().warning(
      fmt::format("WORLD_SIZE is {} but --world-size isn't given: this saves a whole checkpoint, not a shard of one",
                  *environment));
  program.messages().hint("--rank=\"$RANK\" --world-size=\"$WORLD_SIZE\" saves one shard of several");
}

}  // namespace

std::optional<SaveRequest> parse_save_request(Program& program) {
  SaveRequest request;
  Spelling spelling;
  declare(program.line(), request, spelling);
  program.add_jobs_option();
  program.add_metrics_option();
  auto operands = program.parse();
  if (!operands) return std::nullopt;
  require_background(program, request, spelling);
  take_operands(program, request, spelling, std::move(*operands));
  if (!spelling.world_size) warn_of_world_size(program);
  SaveOptions& save = request.stage.save;
  save.create = !spelling.no_create;
  save.check = !spelling.no_check;
  save.world_size = spelling.world_size.value_or(1);
  save.jobs = program.jobs();
  save.fixed_time = source_date_epoch();
  request.stage.until_durable = spelling.durable;
  if (!request.stage.to.empty()) request.stage.queue_password = environment_text("REDISCLI_AUTH").value_or("");
  return request;
}

}  // namespace ckpt::cli

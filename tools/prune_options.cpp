// SPDX-License-Identifier: Apache-2.0
#include "prune_options.hpp"

#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/error.hpp>

#include <limits>

#include "cli/quantities.hpp"
#include "cli/record.hpp"

namespace ckpt::cli {
namespace {

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

[[noreturn]] void malformed(const std::string& text, std::string_view form) {
  throw Error(Errc::invalid_argument, fmt::format("'{}' is not {}", text, form));
}

std::string before_colon(const std::string& text, std::string_view form) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size()) malformed(text, form);
  return text.substr(0, colon);
}

/// A key may hold colons, too.
KeepBest parse_best(const std::string& text) {
  const std::string count = before_colon(text, "N:KEY, N:KEY:min or N:KEY:max");
  KeepBest best{.count = parse_number(count, 1, most), .key = text.substr(count.size() + 1)};
  best.highest = best.key.ends_with(":max");
  if (best.highest || best.key.ends_with(":min")) best.key.resize(best.key.size() - 4);
  if (best.key.empty()) malformed(text, "N:KEY, N:KEY:min or N:KEY:max");
  return best;
}

DropAfter parse_drop(const std::string& text) {
  const std::string count = before_colon(text, "N:PATTERN");
  return {.last = parse_number(count, 1, most), .pattern = text.substr(count.size() + 1)};
}

std::string text_of(const KeepBest& best) {
  return fmt::format("{}:{}:{}", best.count, best.key, best.highest ? "max" : "min");
}
std::string text_of(const DropAfter& drop) { return fmt::format("{}:{}", drop.last, drop.pattern); }
std::string text_of(std::uint64_t step) { return fmt::format("{}", step); }

template <class T>
void repeatable(CommandLine& line, std::string_view name, std::string metavar, std::string help, std::vector<T>& target,
                T (*parse)(const std::string&)) {
  line.option(
      name, std::move(metavar), std::move(help),
      [&target, parse](const std::string& text) { target.push_back(parse(text)); },
      [&target] {
        std::string all;
        for (const T& value : target) all += (all.empty() ? "" : ",") + text_of(value);
        return all;
      });
}

std::uint64_t parse_step(const std::string& text) { return parse_number(text, 0, max_step); }

}  // namespace

void declare_prune_options(CommandLine& line, PruneOptions& prune) {
  RetentionPolicy& policy = prune.policy;
  line.section("What stays; at least one of these");
  line.option("--keep-last", "N", "the newest N", policy.last, std::uint64_t{1});
  line.option("--keep-every", "STEPS", "steps that are multiples of STEPS", policy.every, std::uint64_t{1});
  line.option(
      "--keep-within", "AGE", "those not older than AGE, counted from the newest",
      [&policy](const std::string& text) { policy.within_seconds = parse_duration(text); },
      [&policy] { return policy.within_seconds ? number_text(*policy.within_seconds) : std::string(); });
  line.option("--keep-hourly", "N", "the newest of each of the last N hours that have one", policy.hourly,
              std::uint64_t{1});
  line.option("--keep-daily", "N", "the same for days, in UTC", policy.daily, std::uint64_t{1});
  line.option("--keep-weekly", "N", "the same for weeks, from Monday", policy.weekly, std::uint64_t{1});
  repeatable(line, "--keep-best", "N:KEY[:ORDER]", "the best N by --meta KEY; min, the default, or max", policy.best,
             parse_best);
  line.section("Exceptions; may be repeated");
  repeatable(line, "--keep", "STEP", "this one, too", policy.keep, parse_step);
  repeatable(line, "--remove", "STEP", "not this one; alone: nothing but this one goes", policy.remove, parse_step);
  repeatable(line, "--pin", "STEP", "this one from now on, until it's unpinned", prune.pin, parse_step);
  repeatable(line, "--unpin", "STEP", "end a pin", prune.unpin, parse_step);
  line.section("How");
  repeatable(line, "--drop-after", "N:PATTERN", "tensors that only the last N keep", policy.drop_after, parse_drop);
  line.flag("--verified", "remove nothing while a newer one is unverified", policy.verified);
  line.flag("-n,--dry-run", "decide, print it, change nothing", prune.dry_run);
}

}  // namespace ckpt::cli

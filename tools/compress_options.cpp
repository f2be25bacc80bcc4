// SPDX-License-Identifier: Apache-2.0
#include "compress_options.hpp"

#include <fmt/format.h>
#include <ckpt/address.hpp>
#include <ckpt/error.hpp>

#include <charconv>
#include <string_view>
#include <utility>

#include "cli/record.hpp"

namespace ckpt::cli {
namespace {

void take_encode(CompressOptions& options, const std::string& text) {
  if (text != "fast" && text != "best") {
    throw Error(Errc::invalid_argument, fmt::format("'{}' is neither fast nor best", text));
  }
  options.encode = text == "fast" ? Encode::fast : Encode::best;
}

void take_base(CompressOptions& options, const std::string& text) {
  if (text == "auto")
    options.base = BaseChoice::automatic;
  else if (text == "none")
    options.base = BaseChoice::none;
  else {
    options.base = BaseChoice::step;
    options.base_step = parse_number(text, 0, max_step);
  }
}

std::string base_text(const CompressOptions& options) {
  if (options.base == BaseChoice::step) return fmt::format("{}", options.base_step);
  return options.base == BaseChoice::none ? "none" : "auto";
}

/// PATTERN=VALUE: a pattern may hold an equals sign, too.
std::pair<std::string, std::string> parse_rule(const std::string& text, std::string_view form) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' is not {}", text, form));
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

constexpr std::pair<std::string_view, Quantization> quantizations[] = {{"int8", Quantization::int8},
                                                                       {"int4", Quantization::int4},
                                                                       {"fp8", Quantization::fp8},
                                                                       {"bf16", Quantization::bf16}};

LossyRule parse_quantize(const std::string& text) {
  const auto [pattern, type] = parse_rule(text, "PATTERN=TYPE");
  for (const auto& [name, value] : quantizations) {
    if (name == type) return {.kind = LossyRule::Kind::quantize, .pattern = pattern, .quantization = value};
  }
  throw Error(Errc::invalid_argument, fmt::format("'{}' is none of int8, int4, fp8, bf16", type));
}

LossyRule parse_drop(const std::string& text) { return {.kind = LossyRule::Kind::drop, .pattern = text}; }

LossyRule parse_sparsify(const std::string& text) {
  const auto [pattern, share] = parse_rule(text, "PATTERN=FRACTION");
  double fraction = 0;
  const auto [end, failure] = std::from_chars(share.data(), share.data() + share.size(), fraction);
  if (failure != std::errc() || end != share.data() + share.size() || !(fraction > 0 && fraction < 1)) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' is not a share between 0 and 1", share));
  }
  return {.kind = LossyRule::Kind::sparsify, .pattern = pattern, .fraction = fraction};
}

void add_rules(CommandLine& line, std::string_view name, std::string metavar, std::string help,
               std::vector<LossyRule>& rules, LossyRule::Kind kind, LossyRule (*parse)(const std::string&)) {
  line.option(
      name, std::move(metavar), std::move(help),
      [&rules, parse](const std::string& text) { rules.push_back(parse(text)); },
      [&rules, kind] {
        std::string all;
        for (const LossyRule& rule : rules) {
          if (rule.kind == kind) all += (all.empty() ? "" : ",") + rule.pattern;
        }
        return all;
      });
}

}  // namespace

void declare(CommandLine& line, CompressOptions& options) {
  line.section("How it's encoded");
  line.option(
      "--encode", "HOW", "fast or best (default: best)",
      [&options](const std::string& text) { take_encode(options, text); },
      [&options] { return std::string(options.encode == Encode::fast ? "fast" : "best"); });
  line.option(
      "--level", "N", "zstd's level, 1 to 19, for what repeats",
      [&options](const std::string& text) { options.level = static_cast<int>(parse_number(text, 1, 19)); },
      [&options] { return options.level ? fmt::format("{}", *options.level) : std::string(); });
  line.option("--max-chain", "N", "at most N bases behind one another, 1 to 8", options.max_chain, 1U, 8U);
  line.section("What it's stored against");
  line.option(
      "--base", "STEP", "this one, none, or auto: the one before (default)",
      [&options](const std::string& text) { take_base(options, text); }, [&options] { return base_text(options); });
  line.flag("--newest-full", "the newest in full, each older one against the next newer", options.newest_full);
  line.flag("--across-ranks", "what ranks have in common is stored once", options.across_ranks);
  line.flag("--rebase", "without others, also if that takes more space", options.rebase);
  line.section("Values lost for ever; may be repeated");
  add_rules(line, "--drop", "PATTERN", "all values of these tensors become zero", options.lossy, LossyRule::Kind::drop,
            parse_drop);
  add_rules(line, "--quantize", "PATTERN=TYPE", "rounded: int8, int4, fp8 or bf16", options.lossy,
            LossyRule::Kind::quantize, parse_quantize);
  add_rules(line, "--sparsify", "PATTERN=SHARE", "the smallest become zero: 0.5 for half of them", options.lossy,
            LossyRule::Kind::sparsify, parse_sparsify);
  line.section("Which, and whether");
  line.option(
      "--older-than", "AGE", "those older than AGE, counted from the newest",
      [&options](const std::string& text) { options.older_than_seconds = parse_duration(text); },
      [&options] { return options.older_than_seconds ? number_text(*options.older_than_seconds) : std::string(); });
  line.flag("-n,--dry-run", "estimate what would come out, change nothing", options.dry_run);
}

}  // namespace ckpt::cli

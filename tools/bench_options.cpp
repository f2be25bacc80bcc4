// SPDX-License-Identifier: Apache-2.0
#include "bench_options.hpp"

#include <fmt/format.h>
#include <ckpt/error.hpp>

#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "cli/quantities.hpp"
#include "cli/record.hpp"

namespace ckpt::cli {
namespace {

constexpr std::array<std::pair<std::string_view, Encode>, 3> encodings = {
    {{"raw", Encode::raw}, {"fast", Encode::fast}, {"best", Encode::best}}};

Encode parse_encode(const std::string& text) {
  for (const auto& [name, value] : encodings) {
    if (name == text) return value;
  }
  throw Error(Errc::invalid_argument, fmt::format("'{}' is none of raw, fast, best", text));
}

std::string name_of(Encode encode) {
  for (const auto& [name, value] : encodings) {
    if (value == encode) return std::string(name);
  }
  return {};
}

double parse_fraction(const std::string& text) {
  double value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value <= 1))
    throw Error(Errc::invalid_argument, fmt::format("'{}' is not a number from 0 to 1", text));
  return value;
}

double parse_positive_duration(const std::string& text) {
  const double seconds = parse_duration(text);
  if (!(seconds > 0)) throw Error(Errc::invalid_argument, fmt::format("'{}' is not above 0", text));
  return seconds;
}

constexpr std::uint32_t most_ranks = 1024;
constexpr std::uint32_t most_count = 1000000;

}  // namespace

void declare_bench_options(CommandLine& line, BenchRequest& request) {
  BenchOptions& bench = request.bench;
  line.section("What is saved");
  line.option(
      "--size", "SIZE", "the state of all ranks together (default: 256M)",
      [&bench](const std::string& text) { bench.state_bytes = parse_size(text); },
      [&bench] { return std::to_string(bench.state_bytes); });
  line.option("--tensors", "N", "tensors a rank (default: 100)", bench.tensors, 1U, most_count);
  line.option("--ranks", "N", "ranks that save at the same time (default: 1)", bench.ranks, 1U, most_ranks);
  line.option("--seed", "N", "of the state's values (default: 1)", bench.seed);
  line.option(
      "--encode", "HOW", "how hard to pack: raw, fast or best (default: fast)",
      [&bench](const std::string& text) { bench.encode = parse_encode(text); },
      [&bench] { return name_of(bench.encode); });
  line.section("The loop that computes");
  line.option("--steps", "N", "steps of the loop, a way of saving (default: 50)", bench.steps, 1U, most_count);
  line.option("--saves", "N", "saves among these (default: 3)", bench.saves, 1U, most_count);
  line.option(
      "--step-time", "TIME", "how long a step takes, about (default: 0.1)",
      [&bench](const std::string& text) { bench.step_seconds = parse_duration(text); },
      [&bench] { return number_text(bench.step_seconds); });
  line.option("--threads", "N", "threads that compute (default: the cores less one)", bench.threads, 1U, most_ranks);
  line.option(
      "--update", "FRACTION", "the share of the state a step changes (default: 1)",
      [&bench](const std::string& text) { bench.update = parse_fraction(text); },
      [&bench] { return number_text(bench.update); });
  line.section("What to say");
  line.option(
      "--mtbf", "TIME", "time between failures: how often to save then",
      [&bench](const std::string& text) { bench.mtbf_seconds = parse_positive_duration(text); },
      [&bench] { return bench.mtbf_seconds ? number_text(*bench.mtbf_seconds) : std::string(); });
  line.option("--spool", "DIR", "where detached saves are staged (default: in STORE)", bench.spool);
  line.option("--path", "DIR", "measure this place too; may be repeated", bench.paths);
  line.option("--plot", "FILE.svg", "draw how long each step took", request.plot);
  line.flag("--keep", "leave what was saved in STORE", bench.keep);
}

}  // namespace ckpt::cli

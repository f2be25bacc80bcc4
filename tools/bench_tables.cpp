// SPDX-License-Identifier: Apache-2.0
// Tables for people: at most 80 columns, the ways of saving beside each other.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench_report.hpp"
#include "cli/quantities.hpp"
#include "cli/table.hpp"

namespace ckpt::cli {
namespace {

constexpr auto left = Column::Align::left;
constexpr auto right = Column::Align::right;
constexpr std::size_t page_width = 80;

std::string time_text(double seconds) {
  if (seconds < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  return seconds < 7200 ? fmt::format("{:.3g} min", seconds / 60) : fmt::format("{:.3g} h", seconds / 3600);
}

std::string rate_text(double rate) { return human_bytes(static_cast<std::uint64_t>(rate)) + "/s"; }

/// What is far from 1 needs no decimals.
std::string ratio_text(double ratio) {
  if (ratio >= 99.95) return fmt::format("{:.0f}", ratio);
  return ratio >= 9.995 ? fmt::format("{:.1f}", ratio) : fmt::format("{:.2f}", ratio);
}

std::string with_ratios(const BenchTime& time) {
  return fmt::format("{} {:>5}/{:<4}", time_text(time.seconds), ratio_text(time.to_memcpy), ratio_text(time.to_device));
}

/// A cell without ratios, under the times of those that have them.
std::string plain(const std::string& text) { return text + std::string(11, ' '); }

std::string name_of(BenchWay way) { return way == BenchWay::in_process ? "in-process" : std::string(to_string(way)); }

void print_devices(Report& report, const BenchReport& measured) {
  Table table({{"DEVICE", left}, {"KIND", left}, {"WRITE", right}, {"READ", right}, {"FREE", right}});
  const auto add = [&](const BenchDevice& device) {
    std::string path = device.path;
    constexpr std::size_t most = 32;
    if (path.size() > most) path = "..." + path.substr(path.size() - most + 3);
    table.row(
        {path, device.kind, rate_text(device.write_rate), rate_text(device.read_rate), human_bytes(device.free_bytes)});
  };
  add(measured.device);
  for (const BenchDevice& device : measured.devices) add(device);
  table.print(report);
}

void print_ways(Report& report, const BenchReport& measured) {
  std::vector<Column> columns = {{"A SAVE", left}, {"SYNCHRONOUS", right}, {"DETACHED", right}, {"IN-PROCESS", right}};
  Table table(std::move(columns));
  using Way = BenchWayReport;
  const auto row = [&](std::string name, const std::function<std::string(const Way&)>& cell) {
    std::vector<std::string> cells = {std::move(name)};
    for (const Way& way : measured.ways) cells.push_back(cell(way));
    table.row(std::move(cells));
  };
  row("stall", [](const Way& way) { return with_ratios(way.stall); });
  row("  the longest", [](const Way& way) { return with_ratios(way.longest_stall); });
  row("  own file",
      [](const Way& way) { return way.way == BenchWay::in_process ? plain("-") : with_ratios(way.file); });
  row("staged", [](const Way& way) { return with_ratios(way.staged); });
  row("written", [](const Way& way) { return with_ratios(way.written); });
  row("durable", [](const Way& way) { return with_ratios(way.durable); });
  row("lost", [](const Way& way) { return with_ratios(way.lost); });
  row("loop", [](const Way& way) { return with_ratios(way.loop); });
  row("until durable", [](const Way& way) { return with_ratios(way.total); });
  row("utilisation", [](const Way& way) { return plain(fmt::format("{:.1f} %", 100 * way.utilisation)); });
  row("step", [](const Way& way) { return plain(time_text(way.step_seconds)); });
  row("slow-down", [](const Way& way) {
    return plain(way.slow_seconds > 0 ? fmt::format("x {:.2f}", way.slow_down) : std::string("-"));
  });
  row("  for", [](const Way& way) { return plain(way.slow_seconds > 0 ? time_text(way.slow_seconds) : "-"); });
  row("peak memory", [](const Way& way) { return plain(human_bytes(way.memory_bytes)); });
  row("  set aside",
      [](const Way& way) { return plain(way.way == BenchWay::in_process ? human_bytes(way.aside_bytes) : "-"); });
  row("  of a worker",
      [](const Way& way) { return plain(way.worker_memory_bytes > 0 ? human_bytes(way.worker_memory_bytes) : "-"); });
  row("stored", [](const Way& way) {
    return plain(
        fmt::format("{:.1f} %", 100 * static_cast<double>(way.stored_bytes) / static_cast<double>(way.raw_bytes)));
  });
  table.print(report);
  report.line("Beside a time: how often the state could have been copied in memory in it,");
  report.line("and written to the device (for verify: read).");
}

void print_read(Report& report, const BenchReport& measured) {
  Table table({{"READ BACK", left}, {"A CHECKPOINT", right}});
  table.row({"restore", with_ratios(measured.restore)});
  table.row({"verify", with_ratios(measured.verify)});
  table.print(report);
}

void print_intervals(Report& report, const BenchReport& measured) {
  if (measured.intervals.empty()) return;
  report.line("");
  report.line(fmt::format("With a failure every {}:", time_text(measured.options.mtbf_seconds.value_or(0))));
  Table table({{"INTERVAL", left}, {"YOUNG", right}, {"DALY", right}, {"POSSIBLE", right}, {"TIME LOST", right}});
  for (const BenchInterval& interval : measured.intervals) {
    table.row({name_of(interval.way), time_text(interval.best.young_seconds), time_text(interval.best.daly_seconds),
               time_text(interval.interval_seconds), fmt::format("{:.3g} %", 100 * interval.lost_share)});
  }
  table.print(report);
}

void print_folded(Report& report, const std::string& text) {
  constexpr std::string_view indent = "  ";
  std::string line;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && line.size() + 1 + word.size() > page_width) {
      report.line(line);
      line = indent;
      line += word;
    } else {
      line += (line.empty() ? "" : " ") + word;
    }
    at = end + 1;
  }
  report.line(line);
}

}  // namespace

void print_bench_tables(Report& report, const BenchReport& measured) {
  const BenchOptions& options = measured.options;
  report.line(fmt::format("{} in {} rank{} of {} tensors; threads that compute: {}, cores: {}",
                          human_bytes(options.state_bytes), options.ranks, options.ranks == 1 ? "" : "s",
                          options.tensors, options.threads, measured.machine.cores));
  report.line(fmt::format("memcpy {}, XXH3-128 {}; a step without saves {}", rate_text(measured.machine.memcpy_rate),
                          rate_text(measured.machine.hash_rate), time_text(measured.step_seconds)));
  report.line("");
  print_devices(report, measured);
  report.line("");
  print_ways(report, measured);
  report.line("");
  print_read(report, measured);
  print_intervals(report, measured);
  if (measured.advice.empty()) return;
  report.line("");
  for (const BenchAdvice& advice : measured.advice) print_folded(report, advice.topic + ": " + advice.text);
}

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
// A panel for each way over one axis of time, so that what waits and what runs beside is compared at one glance: a bar
// for each step, as high as it took long, stalls as gaps that are marked, and below a lane for each save's way.
#include <ckpt/bench.hpp>

#include "ops/svg_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt {
namespace {

// Okabe and Ito's palette: safe for colour-blind eyes.
constexpr std::string_view step_color = "#56b4e9";
constexpr std::string_view stall_color = "#d55e00";
constexpr std::string_view write_color = "#e69f00";
constexpr std::string_view commit_color = "#009e73";

/// 1, 2 or 5 times a power of ten, about as many as fit.
double tick_of(double most, double count) {
  const double raw = std::max(most, 1e-9) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) return factor * power;
  }
  return 10 * power;
}

std::string milliseconds(double seconds) { return fmt::format("{:.4g}", seconds * 1e3); }

class BenchPicture {
  static constexpr double width = 1000;
  static constexpr double left = 74;
  static constexpr double right = 20;
  static constexpr double header = 108;
  static constexpr double panel = 130;     ///< of steps
  static constexpr double lane = 12;       ///< of a save
  static constexpr double panel_gap = 44;  ///< for the title of the next one
  static constexpr double axis = 46;

 public:
  explicit BenchPicture(const BenchReport& report) : report_(report) {
    highest_ = report.step_seconds;
    for (const BenchWayReport& way : report.ways) {
      longest_ = std::max(longest_, way.total.seconds);
      for (const BenchStep& step : way.steps) highest_ = std::max(highest_, step.end - step.begin);
    }
    longest_ = std::max(longest_, 1e-3);
    highest_ = std::max(highest_, 1e-6) * 1.05;
  }

  std::string draw() {
    double y = header;
    for (const BenchWayReport& way : report_.ways) y = draw_way(way, y);
    y -= panel_gap - 10;
    draw_time_axis(y);
    const double height = y + axis;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"'DejaVu Sans', Verdana, Arial, sans-serif\">\n<title>What a checkpoint costs</title>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        width, height);
    return svg + heading() + body_ + "</svg>\n";
  }

 private:
  [[nodiscard]] double x_of(double seconds) const { return left + (width - left - right) * seconds / longest_; }

  template <class... Arguments>
  void add(fmt::format_string<Arguments...> form, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(body_), form, std::forward<Arguments>(arguments)...);
  }

  static std::string text(double x, double y, double size, std::string_view color, std::string_view anchor,
                          std::string_view words, std::string_view more = "") {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"{}\" text-anchor=\"{}\"{}>{}</text>\n",
                       x, y, size, color, anchor, more, ops::xml_text(words));
  }

  /// Something that lasts, with its tooltip. What is very short is still seen.
  void span(double begin, double end, double y, double height, std::string_view color, std::string_view more,
            std::string_view tip) {
    add("<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"{}><title>{}</title></rect>\n",
        x_of(begin), y, std::max(x_of(end) - x_of(begin), 0.6), height, color, more, ops::xml_text(tip));
  }

  double draw_way(const BenchWayReport& way, double y) {
    const std::string name = way.way == BenchWay::in_process ? "in-process" : std::string(to_string(way.way));
    body_ += text(left, y - 8, 13, "#222222", "start",
                  fmt::format("{}: {:.1f} % utilisation, stall {} ms, durable after {} ms", name, 100 * way.utilisation,
                              milliseconds(way.stall.seconds), milliseconds(way.durable.seconds)));
    const double bottom = y + panel;
    draw_step_axis(y, bottom);
    for (const BenchSave& save : way.saves) {
      span(save.begin, save.resumed, y, panel, stall_color, " fill-opacity=\"0.28\"",
           fmt::format("step {}: stall {} ms", save.step, milliseconds(save.resumed - save.begin)));
    }
    for (const BenchStep& step : way.steps) {
      const double height = panel * (step.end - step.begin) / highest_;
      span(step.begin, step.end, bottom - height, height, step_color, " stroke=\"#ffffff\" stroke-width=\"0.5\"",
           fmt::format("{} ms", milliseconds(step.end - step.begin)));
    }
    const double alone = bottom - panel * way.alone_seconds / highest_;
    add("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.2f}\" y2=\"{:.2f}\" stroke=\"#222222\" stroke-dasharray=\"5 4\"/>\n",
        left, width - right, alone, alone);
    return draw_lanes(way, bottom + 5) + panel_gap;
  }

  /// A save takes the first lane that is free by then.
  double draw_lanes(const BenchWayReport& way, double y) {
    std::vector<double> free_from;
    for (const BenchSave& save : way.saves) {
      std::size_t at = 0;
      while (at < free_from.size() && free_from[at] > save.begin) ++at;
      if (at == free_from.size()) free_from.push_back(0);
      free_from[at] = save.durable;
      const double top = y + static_cast<double>(at) * lane;
      const auto tip = [&](std::string_view what, double when) {
        return fmt::format("step {}: {} after {} ms", save.step, what, milliseconds(when - save.begin));
      };
      span(save.begin, save.staged, top, lane - 3, stall_color, "", tip("staged", save.staged));
      if (save.written > save.staged)
        span(save.staged, save.written, top, lane - 3, write_color, "", tip("written", save.written));
      const double from = std::max(save.written, save.staged);
      if (save.durable > from) span(from, save.durable, top, lane - 3, commit_color, "", tip("durable", save.durable));
      add("<line x1=\"{0:.2f}\" x2=\"{0:.2f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#222222\" "
          "stroke-width=\"1.5\"/>\n",
          x_of(save.durable), top - 1, top + lane - 2);
    }
    return y + static_cast<double>(free_from.size()) * lane;
  }

  void draw_step_axis(double top, double bottom) {
    const double tick = tick_of(highest_, 4);
    for (double value = 0; value <= highest_; value += tick) {
      const double y = bottom - panel * value / highest_;
      add("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n", left, width - right,
          y, y);
      body_ += text(left - 6, y + 4, 10, "#444444", "end", milliseconds(value));
    }
    const double middle = (top + bottom) / 2;
    body_ += text(18, middle, 11, "#444444", "middle", "step (ms)",
                  fmt::format(" transform=\"rotate(-90 18 {:.1f})\"", middle));
  }

  void draw_time_axis(double y) {
    add("<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#444444\"/>\n", left, width - right, y,
        y);
    const double tick = tick_of(longest_, 12);
    for (double value = 0; value <= longest_ * 1.0001; value += tick) {
      add("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"#444444\"/>\n", x_of(value), y,
          y + 5);
      body_ += text(x_of(value), y + 17, 10, "#444444", "middle", fmt::format("{:.4g}", value));
    }
    body_ += text((left + width - right) / 2, y + 34, 11, "#444444", "middle", "time since the loop began (s)");
  }

  [[nodiscard]] std::string heading() const {
    const double bytes = static_cast<double>(report_.options.state_bytes) / (1 << 20);
    std::string out = text(left, 28, 16, "#222222", "start", "What a checkpoint costs", " font-weight=\"bold\"");
    out += text(left, 46, 11, "#555555", "start",
                fmt::format("{:.4g} MiB, ranks: {}, threads that compute: {}; hover for details", bytes,
                            report_.options.ranks, report_.options.threads));
    double x = left;
    const auto swatch = [&](std::string_view color, std::string_view opacity, std::string_view words) {
      out += fmt::format("<rect x=\"{:.1f}\" y=\"57\" width=\"12\" height=\"10\" fill=\"{}\" fill-opacity=\"{}\"/>\n",
                         x, color, opacity);
      out += text(x + 17, 66, 11, "#222222", "start", words);
      x += ops::text_width(words, 11) + 34;
    };
    swatch(step_color, "1", "a step");
    swatch(stall_color, "0.28", "the loop stands still");
    swatch(stall_color, "1", "until staged");
    swatch(write_color, "1", "until written");
    swatch(commit_color, "1", "until durable");
    out += fmt::format(
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"62\" y2=\"62\" stroke=\"#222222\" "
        "stroke-dasharray=\"5 4\"/>\n",
        x, x + 22);
    out += text(x + 28, 66, 11, "#222222", "start", "a step without a save beside it");
    return out;
  }

  const BenchReport& report_;
  double longest_ = 0;
  double highest_ = 0;
  std::string body_;
};

}  // namespace

std::string draw_bench(const BenchReport& report) { return BenchPicture(report).draw(); }

}  // namespace ckpt

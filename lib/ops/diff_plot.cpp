// SPDX-License-Identifier: Apache-2.0
// An icicle: depth goes to the right, so that every name is read as it's written; a tensor is as high as the logarithm
// of its size, a module as high as what it holds. Pictures of many tensors get lower rows, whose names are in tooltips.
#include <ckpt/diff.hpp>

#include "ops/export_output.hpp"
#include "ops/plot_tree.hpp"
#include "ops/svg_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

namespace ckpt {
namespace {

using ops::PlotNode;
using ops::relative_change;

constexpr double margin = 16;
constexpr double header = 104;       ///< above the tree
constexpr double least_width = 440;  ///< of the tree
constexpr double least_row = 3;
constexpr double text_row = 9;  ///< rows from here on have text in them
/// Rows are shrunk to this height in all while they stay above least_row.
constexpr double page = 2400;
/// The numbers beside each tensor, each to the left of these places.
constexpr std::array<double, 3> number_columns = {70, 140, 210};
constexpr double note_width = 220;
constexpr int most_decades = 6;

struct Color {
  double red, green, blue;
};

/// ColorBrewer's YlOrRd: light is little, and it's safe for colour-blind eyes.
constexpr std::array<Color, 7> ramp = {
    {{255, 255, 178}, {254, 217, 118}, {254, 178, 76}, {253, 141, 60}, {252, 78, 42}, {227, 26, 28}, {177, 0, 38}}};

Color color_at(double share) {
  const double place = std::clamp(share, 0.0, 1.0) * (ramp.size() - 1);
  const auto index = std::min(static_cast<std::size_t>(place), ramp.size() - 2);
  const double rest = place - static_cast<double>(index);
  const Color& from = ramp[index];
  const Color& to = ramp[index + 1];
  return {from.red + (to.red - from.red) * rest, from.green + (to.green - from.green) * rest,
          from.blue + (to.blue - from.blue) * rest};
}

std::string hex(const Color& color) {
  return fmt::format("#{:02x}{:02x}{:02x}", std::lround(color.red), std::lround(color.green), std::lround(color.blue));
}

bool is_dark(const Color& color) { return 0.299 * color.red + 0.587 * color.green + 0.114 * color.blue < 128; }

/// From the least to the largest change, by decades.
struct Scale {
  int low = -1;
  int high = 0;

  [[nodiscard]] double share(double change) const {
    if (!std::isfinite(change)) return 1;
    return change <= 0 ? 0 : (std::log10(change) - low) / (high - low);
  }
};

void widen(const PlotNode& node, std::optional<double>& least, std::optional<double>& most) {
  const auto change = relative_change(node);
  if (change && *change > 0 && std::isfinite(*change)) {
    least = std::min(least.value_or(*change), *change);
    most = std::max(most.value_or(*change), *change);
  }
  for (const PlotNode& child : node.children) widen(child, least, most);
}

Scale scale_of(const PlotNode& root) {
  std::optional<double> least;
  std::optional<double> most;
  widen(root, least, most);
  if (!most) return {};
  Scale scale;
  scale.high = static_cast<int>(std::ceil(std::log10(*most)));
  scale.low = std::clamp(static_cast<int>(std::floor(std::log10(*least))), scale.high - most_decades, scale.high - 1);
  return scale;
}

double own_height(const PlotNode& leaf) {
  const double least = leaf.tensors > 1 ? 28 : 15;
  return std::max(least, 4 * std::log10(static_cast<double>(leaf.elements) + 1));
}

double height_of(const PlotNode& node) {
  if (node.is_leaf()) return own_height(node);
  double sum = 0;
  for (const PlotNode& child : node.children) sum += height_of(child);
  return sum;
}

std::size_t leaves_of(const PlotNode& node) {
  if (node.is_leaf()) return 1;
  std::size_t sum = 0;
  for (const PlotNode& child : node.children) sum += leaves_of(child);
  return sum;
}

struct Mark {
  bool added = false, removed = false, odd = false, same = false, non_finite = false;
};

class Picture {
 public:
  Picture(const DiffReport& report, const PlotNode& root) : report_(report), root_(root), scale_(scale_of(root)) {
    const double natural = height_of(root);
    const double least = least_row * static_cast<double>(leaves_of(root));
    row_scale_ = natural <= page ? 1 : std::max(page, std::min(least * 2, natural)) / natural;
    measure(root, 0);
    // The legend needs its room.
    double natural_width = 0;
    for (const double width : widths_) natural_width += width;
    widths_.back() += std::max(0.0, least_width - natural_width);
    double x = margin;
    for (const double width : widths_) {
      columns_.push_back(x);
      x += width;
    }
    columns_.push_back(x);
    tree_height_ = natural * row_scale_;
  }

  std::string draw() {
    place(root_, 0, header);
    const double width = std::max(columns_.back() + note_width + margin, 760.0);
    const double height = header + tree_height_ + margin;
    std::string svg = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
        "{1:.0f}\" "
        "font-family=\"'DejaVu Sans', Verdana, Arial, sans-serif\">\n"
        "<title>{2}</title>\n"
        "<defs>\n"
        "<pattern id=\"added\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" fill=\"#c7e9c0\"/><rect width=\"2\" "
        "height=\"6\" fill=\"#74c476\"/></pattern>\n"
        "<pattern id=\"removed\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" "
        "patternTransform=\"rotate(-45)\"><rect width=\"6\" height=\"6\" fill=\"#deebf7\"/><rect width=\"2\" "
        "height=\"6\" fill=\"#9ecae1\"/></pattern>\n"
        "<linearGradient id=\"ramp\">",
        width, height, ops::xml_text(title()));
    for (std::size_t i = 0; i < ramp.size(); ++i) {
      fmt::format_to(std::back_inserter(svg), "<stop offset=\"{:.4f}\" stop-color=\"{}\"/>",
                     static_cast<double>(i) / (ramp.size() - 1), hex(ramp[i]));
    }
    svg += "</linearGradient>\n</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
    svg += heading(width);
    svg += body_;
    return svg + "</svg>\n";
  }

 private:
  [[nodiscard]] std::string title() const { return report_.a + " → " + report_.b; }

  /// Columns are as wide as their longest name.
  void measure(const PlotNode& node, std::size_t depth) {
    if (widths_.size() <= depth) widths_.push_back(0);
    const double most = node.is_leaf() ? 260 : 200;
    const double own = std::clamp(ops::text_width(label(node), 11) + 14, depth == 0 ? 40.0 : 56.0, most);
    widths_[depth] = std::max(widths_[depth], own);
    for (const PlotNode& child : node.children) measure(child, depth + 1);
  }

  static std::string label(const PlotNode& node) {
    if (node.name.empty()) return "all";
    // One that stands for what it holds.
    const bool closed = node.is_leaf() && node.tensors > 1 && !node.key.ends_with(" more)");
    return closed ? fmt::format("{} ({} tensors)", node.key, node.tensors) : node.key;
  }

  Mark mark_of(const PlotNode& node) {
    Mark mark;
    mark.added = node.added == node.tensors && node.tensors > 0;
    mark.removed = node.removed == node.tensors && node.tensors > 0;
    mark.same = node.differing == 0;
    mark.odd = !mark.same && !mark.added && !mark.removed && !relative_change(node);
    mark.non_finite = node.numbers.nan_b + node.numbers.inf_b > 0;
    seen_.added |= mark.added;
    seen_.removed |= mark.removed;
    seen_.odd |= mark.odd;
    seen_.same |= mark.same;
    seen_.non_finite |= mark.non_finite;
    return mark;
  }

  /// What there is to say where there are no numbers.
  static std::string remark(const PlotNode& node, const Mark& mark) {
    if (mark.added) return "added";
    if (mark.removed) return "removed";
    if (mark.same) return "same";
    if (!mark.odd) return {};
    return node.tensors == 1 ? "another shape or type, or raw bits" : "added, removed or of another shape";
  }

  static std::string changed_share(const DiffNumbers& numbers) {
    if (numbers.changed == numbers.elements) return "all";
    const double percent = 100 * static_cast<double>(numbers.changed) / static_cast<double>(numbers.elements);
    return percent < 99.95 ? fmt::format("{:.3g} %", percent) : "99.9 %";
  }

  /// Relative and largest change, and the share of the elements.
  static std::array<std::string, 3> cells(const PlotNode& node) {
    const DiffNumbers& numbers = node.numbers;
    return {fmt::format("{:.2g}", relative_change(node).value_or(0)), fmt::format("{:.3g}", numbers.max_abs),
            changed_share(numbers)};
  }

  [[nodiscard]] std::string tooltip(const PlotNode& node, const Mark& mark) const {
    std::string text = node.name.empty() ? "all" : node.name;
    if (!node.about.empty()) text += "\n" + node.about;
    if (node.tensors > 1) text += fmt::format("\n{} of {} tensors differ", node.differing, node.tensors);
    if (node.tensors > 1 && node.added > 0) text += fmt::format(", {} added", node.added);
    if (node.tensors > 1 && node.removed > 0) text += fmt::format(", {} removed", node.removed);
    if (const std::string said = remark(node, mark); !said.empty()) text += "\n" + said;
    const DiffNumbers& n = node.numbers;
    if (n.changed > 0) {
      text += fmt::format("\nrelative change {:.3g}, largest {:.3g}, mean {:.3g}\n{} of {} elements changed",
                          relative_change(node).value_or(0), n.max_abs, n.mean_abs(), n.changed, n.elements);
    }
    if (const auto cosine = n.cosine(); cosine && n.changed > 0) text += fmt::format(", cosine {:.6f}", *cosine);
    if (n.nan_a + n.nan_b + n.inf_a + n.inf_b > 0) {
      text += fmt::format("\nNaN {} before, {} after; Inf {} before, {} after", n.nan_a, n.nan_b, n.inf_a, n.inf_b);
    }
    return text;
  }

  void place(const PlotNode& node, std::size_t depth, double y) {
    const double height = height_of(node) * row_scale_;
    const Mark mark = mark_of(node);
    const double x = columns_[depth];
    // A tensor reaches to the last column: what lies beside each other is then compared at one glance.
    const double width = (node.is_leaf() ? columns_.back() : columns_[depth + 1]) - x;
    const Color color = color_at(scale_.share(relative_change(node).value_or(0)));
    std::string fill = hex(color);
    if (mark.same) fill = "#eeeeee";
    if (mark.odd) fill = "#cbb9e6";
    if (mark.added) fill = "url(#added)";
    if (mark.removed) fill = "url(#removed)";
    const bool broken = mark.non_finite && node.is_leaf();
    if (broken) fill = "#f9b8f5";
    const bool light_text = is_dark(color) && !broken && !mark.same && !mark.odd && !mark.added && !mark.removed;
    fmt::format_to(std::back_inserter(body_),
                   "<g><title>{}</title><rect x=\"{:.1f}\" y=\"{:.2f}\" width=\"{:.1f}\" height=\"{:.2f}\" fill=\"{}\" "
                   "stroke=\"{}\" stroke-width=\"{}\"/>",
                   ops::xml_text(tooltip(node, mark)), x, y, width, height, fill,
                   mark.non_finite ? "#d400d4" : "#ffffff",
                   mark.non_finite ? 1.5
                   : height < 8    ? 0.3
                                   : 1);
    if (height >= text_row) {
      const double size = std::min(11.0, height - 2);
      std::string text = label(node);
      if (mark.non_finite && node.is_leaf()) text += node.numbers.nan_b > 0 ? "  NaN" : "  Inf";
      // In the middle of a very high one it would be out of sight.
      const double middle = height > 240 ? y + 20 : y + height / 2;
      const double baseline = middle + size * 0.36;
      add_text(x + 6, baseline, size, light_text ? "#ffffff" : "#222222", ops::fitting(text, width - 10, size));
      // Where no child has room for its numbers, they're those of the module.
      const bool speaks = std::all_of(node.children.begin(), node.children.end(),
                                      [&](const PlotNode& child) { return height_of(child) * row_scale_ < text_row; });
      if (speaks) add_numbers(node, mark, y + height / 2 + size * 0.36, std::min(size, 10.0));
    }
    body_ += "</g>\n";
    for (const PlotNode& child : node.children) {
      place(child, depth + 1, y);
      y += height_of(child) * row_scale_;
    }
  }

  void add_numbers(const PlotNode& node, const Mark& mark, double baseline, double size) {
    const double x = columns_.back();
    if (const std::string said = remark(node, mark); !said.empty()) {
      add_text(x + 10, baseline, size, mark.same ? "#aaaaaa" : "#555555", said);
      return;
    }
    has_numbers_ = true;
    const auto texts = cells(node);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      add_text(x + number_columns[i], baseline, size, "#333333", texts[i], "end");
    }
  }

  void add_text(double x, double y, double size, std::string_view color, const std::string& text,
                std::string_view anchor = "start") {
    if (text.empty()) return;
    fmt::format_to(std::back_inserter(body_),
                   "<text x=\"{:.1f}\" y=\"{:.2f}\" font-size=\"{:.1f}\" fill=\"{}\" text-anchor=\"{}\">{}</text>", x,
                   y, size, color, anchor, ops::xml_text(text));
  }

  [[nodiscard]] std::string heading(double width) const {
    std::string out;
    const auto to = std::back_inserter(out);
    const double half = (width - 2 * margin - 40) / 2;
    fmt::format_to(to, "<text x=\"{}\" y=\"30\" font-size=\"16\" font-weight=\"bold\" fill=\"#222222\">{}</text>\n",
                   margin, ops::xml_text(ops::ending(report_.a, half, 16) + " → " + ops::ending(report_.b, half, 16)));
    fmt::format_to(to, "<text x=\"{}\" y=\"49\" font-size=\"11\" fill=\"#555555\">{}</text>\n", margin,
                   ops::xml_text(fmt::format("{} of {} tensors differ. A tensor's height grows with its size; "
                                             "hover for details.",
                                             root_.differing, root_.tensors)));
    double x = margin;
    if (root_.numbers.changed > 0) {
      constexpr double ramp_width = 300;
      fmt::format_to(to,
                     "<rect x=\"{0}\" y=\"62\" width=\"{1}\" height=\"12\" fill=\"url(#ramp)\" stroke=\"#999999\" "
                     "stroke-width=\"0.5\"/>\n",
                     x, ramp_width);
      const int decades = scale_.high - scale_.low;
      for (int i = 0; i <= decades; ++i) {
        const double at = x + ramp_width * i / decades;
        const std::string_view anchor = i == 0 ? "start" : i == decades ? "end" : "middle";
        fmt::format_to(
            to,
            "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"74\" y2=\"78\" stroke=\"#666666\"/><text x=\"{0:.1f}\" "
            "y=\"89\" font-size=\"10\" text-anchor=\"{1}\" fill=\"#444444\">{2}</text>\n",
            at, anchor, decade(scale_.low + i));
      }
      fmt::format_to(to, "<text x=\"{:.1f}\" y=\"72\" font-size=\"11\" fill=\"#222222\">relative change</text>\n",
                     x + ramp_width + 8);
      x += ramp_width + 118;
    }
    const auto swatch = [&](bool wanted, std::string_view fill, std::string_view stroke, std::string_view text) {
      if (!wanted) return;
      fmt::format_to(
          to,
          "<rect x=\"{:.1f}\" y=\"62\" width=\"12\" height=\"12\" fill=\"{}\" stroke=\"{}\"/><text x=\"{:.1f}\" "
          "y=\"72\" font-size=\"11\" fill=\"#222222\">{}</text>\n",
          x, fill, stroke, x + 18, text);
      x += ops::text_width(text, 11) + 34;
    };
    swatch(seen_.same, "#eeeeee", "#999999", "same");
    swatch(seen_.added, "url(#added)", "#999999", "added");
    swatch(seen_.removed, "url(#removed)", "#999999", "removed");
    swatch(seen_.odd, "#cbb9e6", "#999999", "other shape or type");
    swatch(seen_.non_finite, "#f9b8f5", "#d400d4", "holds NaN or Inf");
    constexpr std::array<std::string_view, 3> titles = {"relative", "largest", "changed"};
    for (std::size_t i = 0; has_numbers_ && i < titles.size(); ++i) {
      fmt::format_to(to,
                     "<text x=\"{:.1f}\" y=\"{}\" font-size=\"10\" text-anchor=\"end\" fill=\"#777777\">{}</text>\n",
                     columns_.back() + number_columns[i], header - 6, titles[i]);
    }
    return out;
  }

  static std::string decade(int exponent) {
    if (exponent >= -3 && exponent <= 3) return fmt::format("{:g}", std::pow(10.0, exponent));
    return fmt::format("1e{}", exponent);
  }

  const DiffReport& report_;
  const PlotNode& root_;
  Scale scale_;
  Mark seen_;
  bool has_numbers_ = false;
  std::vector<double> widths_;
  std::vector<double> columns_;  ///< where each begins, and where the last ends
  double row_scale_ = 1;
  double tree_height_ = 0;
  std::string body_;
};

}  // namespace

std::string draw_diff(const DiffReport& report) {
  const PlotNode root = ops::make_plot_tree(report);
  return Picture(report, root).draw();
}

void write_text_file(const std::string& path, std::string_view text) {
  ops::ExportOutput output(path, true, text.size());
  output.write(as_bytes(text));
  output.commit();
}

}  // namespace ckpt

// SPDX-License-Identifier: Apache-2.0
// ckpt-diff: says in what two checkpoints differ, and draws where in the network.
#include <fmt/format.h>
#include <ckpt/diff.hpp>

#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "cli/program.hpp"
#include "diff_report.hpp"

namespace ckpt::cli {
namespace {

struct Request {
  DiffOptions diff;
  DiffView view;
  std::optional<std::string> plot;
};

constexpr std::pair<std::string_view, DiffOrder> orders[] = {
    {"name", DiffOrder::name},     {"changed", DiffOrder::changed}, {"max", DiffOrder::max},
    {"mean", DiffOrder::mean},     {"l2", DiffOrder::l2},           {"relative", DiffOrder::relative},
    {"cosine", DiffOrder::cosine}, {"size", DiffOrder::size}};

DiffOrder order_of(const std::string& text) {
  for (const auto& [name, order] : orders) {
    if (name == text) return order;
  }
  throw Error(Errc::invalid_argument,
              fmt::format("'{}' is none of name, changed, max, mean, l2, relative, cosine, size", text));
}

std::string name_of(std::optional<DiffOrder> order) {
  for (const auto& [name, value] : orders) {
    if (value == order) return std::string(name);
  }
  return {};
}

double parse_bound(std::string_view text, const std::string& whole) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || std::signbit(value)) {
    throw Error(Errc::invalid_argument, fmt::format("'{}' is not a tolerance: ABS or ABS,REL, each 0 or more", whole));
  }
  return value;
}

Tolerance parse_tolerance(const std::string& text) {
  const std::size_t comma = text.find(',');
  Tolerance tolerance{.absolute = parse_bound(std::string_view(text).substr(0, comma), text)};
  if (comma != std::string::npos) tolerance.relative = parse_bound(std::string_view(text).substr(comma + 1), text);
  return tolerance;
}

std::string text_of(const std::optional<Tolerance>& tolerance) {
  if (!tolerance) return {};
  return number_text(tolerance->absolute) + "," + number_text(tolerance->relative);
}

void declare(CommandLine& line, Request& request) {
  DiffView& view = request.view;
  line.section("What counts");
  line.option(
      "--tolerance", "ABS[,REL]", "elements that differ by no more are the same",
      [&request](const std::string& text) { request.diff.tolerance = parse_tolerance(text); },
      [&request] { return text_of(request.diff.tolerance); });
  line.flag("--whole", "REL L2 and COSINE of all elements; reads what is equal, too", request.diff.whole);
  line.section("What is shown");
  line.flag("-s,--summarize", "sums for each module instead of tensors", view.modules);
  line.option("--depth", "N", "with -s: modules of at most N keys", view.depth);
  line.option(
      "--sort", "KEY", "name, changed, max, mean, l2, relative, cosine or size",
      [&view](const std::string& text) { view.order = order_of(text); }, [&view] { return name_of(view.order); });
  line.option("--top", "N", "the first N tensors or modules only", view.most);
  line.option("--plot", "FILE.svg", "draw where in the network the change is", request.plot);
}

void take_operands(Program& program, Request& request, const std::vector<std::string>& operands) {
  if (operands.size() < 2) throw usage_error(program, "two operands are needed, A and B");
  if (operands.size() > 2) throw usage_error(program, fmt::format("operand '{}' is one too many", operands[2]));
  if (request.view.depth && !request.view.modules) throw usage_error(program, "--depth needs --summarize");
  if (request.plot && (request.plot->empty() || *request.plot == "-")) {
    throw usage_error(program, "--plot needs the name of a file");
  }
  // The first N of an order that means nothing would mean nothing.
  if (request.view.most && !request.view.order) request.view.order = DiffOrder::relative;
  request.diff.a = operands[0];
  request.diff.b = operands[1];
  request.diff.jobs = program.jobs();
}

int body(Program& program) {
  Request request;
  declare(program.line(), request);
  program.add_jobs_option();
  const auto operands = program.parse();
  if (!operands) return exit_done;
  take_operands(program, request, *operands);

  const DiffReport found = diff(request.diff, program.monitor());
  if (request.plot) write_text_file(*request.plot, draw_diff(found));
  const int status = found.same() ? exit_done : exit_no;
  Report report = program.report("ckpt-diff/1");
  report.header({{"a", found.a}, {"b", found.b}, {"whole", found.whole}});
  print_diff(report, found, request.view, program.colors_output());
  report.summary(diff_summary(found, status));
  program.messages().note(fmt::format("{} tensors compared, {} read in {}", found.tensors.size(),
                                      human_bytes(found.bytes_read), human_duration(found.seconds)));
  return status;
}

}  // namespace
}  // namespace ckpt::cli

int main(int argc, char** argv) {
  using namespace ckpt::cli;
  return run({.name = "ckpt-diff",
              .synopsis = {"[options] A B"},
              .summary = "Says in what two checkpoints differ. Each of A and B is STORE[@STEP], a file or a directory. "
                         "Prints nothing when they are the same.",
              .exits = exit_table("the same", "different")},
             argc, argv, body);
}

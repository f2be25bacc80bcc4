// SPDX-License-Identifier: Apache-2.0
#include "prune_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/table.hpp"

namespace ckpt::cli {
namespace {

std::string joined(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ",")); }

std::string_view action_of(const PruneDecision& decision) {
  if (!decision.kept) return "remove";
  return decision.dropped.empty() ? "keep" : "drop";
}

FieldValue time_of(const PruneDecision& decision) {
  if (!decision.created) return std::monostate{};
  return rfc3339_utc(*decision.created);
}

void put_table(Program& program, Report& report, const PruneReport& pruned) {
  Table table({{.title = "STEP", .align = Column::Align::right},
               {.title = "ACTION"},
               {.title = "WHY"},
               {.title = "STORED", .align = Column::Align::right},
               {.title = "TIME"}});
  for (const PruneDecision& decision : pruned.decisions) {
    std::string why = joined(decision.rules);
    if (decision.rebased) why += why.empty() ? "encoded anew" : ", encoded anew";
    if (!decision.dropped.empty()) why += ", without " + joined(decision.dropped);
    const bool red = !decision.kept && program.colors_output();
    table.row(
        {fmt::format("{}{}", decision.step, decision.retired ? " (retired)" : ""), std::string(action_of(decision)),
         why, human_bytes(decision.stored_bytes), decision.created ? rfc3339_utc(*decision.created) : std::string()},
        red ? "\x1b[31m" : "");
  }
  table.print(report);
}

}  // namespace

void put_decisions(Program& program, Report& report, const PruneOptions& options, const PruneReport& pruned) {
  if (report.is_human()) {
    if (options.dry_run) put_table(program, report, pruned);
    program.messages().note(fmt::format("{}: {} checkpoints, {} {}", options.store, pruned.removed,
                                        human_bytes(pruned.removed_bytes), options.dry_run ? "would go" : "removed"));
    return;
  }
  for (const PruneDecision& decision : pruned.decisions) {
    report.record({"decision",
                   {{"step", decision.step},
                    {"action", std::string(action_of(decision))},
                    {"rules", text_or_none(joined(decision.rules))},
                    {"id", text_or_none(decision.id)},
                    {"retired", decision.retired},
                    {"stored_bytes", decision.stored_bytes},
                    {"time", time_of(decision)},
                    {"dropped", text_or_none(joined(decision.dropped))},
                    {"rebased", decision.rebased}}});
  }
}

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
#include "compress_report.hpp"

#include <fmt/format.h>
#include <ckpt/address.hpp>

#include "cli/table.hpp"

namespace ckpt::cli {
namespace {

std::string share_of(std::uint64_t stored, std::uint64_t raw) {
  if (raw == 0) return {};
  return fmt::format("{:.3f}", static_cast<double>(stored) / static_cast<double>(raw));
}

void put_table(Report& report, const CompressReport& done) {
  Table table({{.title = "STEP", .align = Column::Align::right},
               {.title = "ACTION"},
               {.title = "BASE", .align = Column::Align::right},
               {.title = "STORED", .align = Column::Align::right},
               {.title = "EXPECTED", .align = Column::Align::right},
               {.title = "RATIO", .align = Column::Align::right},
               {.title = "WHY"}});
  for (const CompressedCheckpoint& one : done.checkpoints) {
    table.row({fmt::format("{}", one.step), std::string(name_of(one.action)),
               one.base ? fmt::format("{}", *one.base) : std::string(), human_bytes(one.stored_before),
               human_bytes(one.stored_after), share_of(one.stored_after, one.raw_bytes), one.reason},
              "");
  }
  table.print(report);
}

/// What was lost is said also to people: it can't be had again.
void put_losses(Report& report, const CompressOptions& options, const CompressReport& done) {
  Table table({{.title = "STEP", .align = Column::Align::right},
               {.title = "RANK", .align = Column::Align::right},
               {.title = "TENSOR"},
               {.title = "DTYPE"},
               {.title = "CHANGE"},
               {.title = "LARGEST ERROR", .align = Column::Align::right},
               {.title = "MEAN ERROR", .align = Column::Align::right}});
  const auto number = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.3g}", *value) : std::string();
  };
  for (const CompressedCheckpoint& one : done.checkpoints) {
    for (const TensorLoss& loss : one.losses) {
      table.row({fmt::format("{}", one.step), fmt::format("{}", loss.rank), loss.tensor, loss.dtype, loss.change,
                 number(loss.largest_error), number(loss.mean_error)},
                "");
      report.record({"loss",
                     {{"address", address_of(options.store, one.step)},
                      {"rank", std::uint64_t{loss.rank}},
                      {"file", loss.file},
                      {"tensor", loss.tensor},
                      {"dtype", loss.dtype},
                      {"change", loss.change},
                      {"largest_error", field_of(loss.largest_error)},
                      {"mean_error", field_of(loss.mean_error)}}});
    }
  }
  if (report.is_human()) table.print(report);
}

}  // namespace

std::string_view name_of(CompressAction action) {
  switch (action) {
    case CompressAction::encoded: return "encoded";
    case CompressAction::unchanged: return "unchanged";
    case CompressAction::skipped: return "skipped";
    case CompressAction::failed: return "failed";
  }
  return "failed";
}

void put_checkpoints(Program& program, Report& report, const CompressOptions& options, const CompressReport& done) {
  if (report.is_human()) {
    if (options.dry_run) put_table(report, done);
    put_losses(report, options, done);
    if (options.dry_run) return;
    for (const CompressedCheckpoint& one : done.checkpoints) {
      program.messages().note(fmt::format("{}: {}, {} to {}", address_of(options.store, one.step), name_of(one.action),
                                          human_bytes(one.stored_before), human_bytes(one.stored_after)));
    }
    return;
  }
  put_losses(report, options, done);
  // Rows of tsv are of one kind.
  if (!options.lossy.empty() && report.format() == Format::tsv) return;
  for (const CompressedCheckpoint& one : done.checkpoints) {
    report.record({"compressed",
                   {{"address", address_of(options.store, one.step)},
                    {"step", one.step},
                    {"action", std::string(name_of(one.action))},
                    {"stored_before", one.stored_before},
                    {"stored_after", one.stored_after},
                    {"raw_bytes", one.raw_bytes},
                    {"id", text_or_none(one.id)},
                    {"base_step", field_of(one.base)},
                    {"reason", text_or_none(one.reason)}}});
  }
}

int put_failures(Program& program, const CompressOptions& options, const CompressReport& done) {
  int status = exit_done;
  for (const CompressedCheckpoint& one : done.checkpoints) {
    if (one.action == CompressAction::skipped) {
      const std::string text = fmt::format("{} left as it is: {}", address_of(options.store, one.step), one.reason);
      if (one.temporary) {
        program.messages().warning(text);
      } else {
        program.messages().note(text);
      }
    }
    if (one.action != CompressAction::failed) continue;
    program.messages().error(one.reason);
    status = worse_of(status, one.temporary ? exit_temporary : exit_trouble);
  }
  for (const std::string& pattern : done.unmatched) {
    program.messages().error(fmt::format("no tensor matches '{}'", pattern));
    status = exit_trouble;
  }
  return status;
}

}  // namespace ckpt::cli

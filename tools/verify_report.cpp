// SPDX-License-Identifier: Apache-2.0
// Findings as lines and records. Damage and non-finite values share their columns, so that tsv has one form.
#include "verify_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ckpt::cli {
namespace {

std::string human_line(std::string_view tool, const Damage& damage) {
  std::string text = fmt::format("{}: {}", tool, damage.checkpoint);
  if (!damage.shard.empty()) text += ": " + damage.shard;
  text += fmt::format(": {}", to_string(damage.kind));
  if (damage.end > damage.begin) text += fmt::format(": bytes {}..{}", damage.begin, damage.end);
  if (!damage.file.empty()) text += fmt::format(": file '{}'", damage.file);
  if (!damage.tensor.empty()) text += fmt::format("{} tensor '{}'", damage.file.empty() ? ":" : ",", damage.tensor);
  if (!damage.detail.empty()) text += ": " + damage.detail;
  if (!damage.repair.empty())
    text += fmt::format(": {}: {}", damage.repaired ? "repaired" : "not repaired", damage.repair);
  return text;
}

void put(Report& report, std::string_view tool, const Damage& damage) {
  report.line(human_line(tool, damage));
  report.record({"damage",
                 {{"kind", std::string(to_string(damage.kind))},
                  {"checkpoint", damage.checkpoint},
                  {"shard", text_or_none(damage.shard)},
                  {"begin", damage.begin},
                  {"end", damage.end},
                  {"file", text_or_none(damage.file)},
                  {"tensor", text_or_none(damage.tensor)},
                  {"detail", text_or_none(damage.detail)},
                  {"repaired", damage.repaired},
                  {"repair", text_or_none(damage.repair)},
                  {"rank", {}},
                  {"nan", {}},
                  {"inf", {}}}});
}

void put(Report& report, std::string_view tool, const NonFinite& found) {
  report.line(fmt::format("{}: {}: non-finite: file '{}', tensor '{}': {} NaN, {} Inf", tool, found.checkpoint,
                          found.file, found.tensor, found.nan, found.inf));
  report.record({"non_finite",
                 {{"kind", std::string("non-finite")},
                  {"checkpoint", found.checkpoint},
                  {"shard", {}},
                  {"begin", {}},
                  {"end", {}},
                  {"file", found.file},
                  {"tensor", found.tensor},
                  {"detail", {}},
                  {"repaired", {}},
                  {"repair", {}},
                  {"rank", std::uint64_t{found.rank}},
                  {"nan", found.nan},
                  {"inf", found.inf}}});
}

// Not damage, so tsv and people aren't told: a verifier is silent when all is well.
void put(Report& report, Messages& messages, const std::string& store, const NotCommitted& set) {
  const std::vector<std::int64_t> missing(set.missing_ranks.begin(), set.missing_ranks.end());
  messages.note(fmt::format("{}: not yet committed: attempt {}, missing ranks {}", address_of(store, set.step),
                            set.attempt, fmt::join(missing, ",")));
  if (report.format() != Format::json) return;
  report.record({"not_committed",
                 {{"kind", std::string("not-committed")},
                  {"store", store},
                  {"step", set.step},
                  {"attempt", set.attempt},
                  {"world_size", std::uint64_t{set.world_size}},
                  {"missing_ranks", missing}}});
}

}  // namespace

void put_result(Program& program, Report& report, const Address& what, const VerifyReport& verified) {
  for (const Damage& damage : verified.damages) put(report, program.name(), damage);
  for (const NonFinite& found : verified.non_finite) put(report, program.name(), found);
  for (const NotCommitted& set : verified.not_committed) put(report, program.messages(), what.store, set);
  program.messages().note(fmt::format("{}: {} checkpoints, {} checked in {}{}", to_string(what), verified.checkpoints,
                                      human_bytes(verified.bytes), human_duration(verified.seconds),
                                      verified.complete ? "" : ", stopped by --budget"));
}

}  // namespace ckpt::cli

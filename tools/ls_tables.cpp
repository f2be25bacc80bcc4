// SPDX-License-Identifier: Apache-2.0
// The same lists for people: rounded, shortened, free to change.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/quantities.hpp"
#include "cli/table.hpp"
#include "cli/text_escape.hpp"
#include "ls_records.hpp"

namespace ckpt::cli {
namespace {

constexpr auto left = Column::Align::left;
constexpr auto right = Column::Align::right;

std::string joined(const std::map<std::string, std::string>& map) {
  std::string text;
  for (const auto& [key, value] : map) text += (text.empty() ? "" : " ") + key + "=" + value;
  return text;
}

std::string state_of(const CheckpointInfo& info) {
  std::string text = info.state;
  for (const auto& [mark, reason] : info.marks) {
    if (mark != "derived_from") text += "," + mark;  // "lossy" says it
  }
  return text;
}

std::string_view color_of(const CheckpointInfo& info) {
  if (info.state == "damaged") return "\033[31m";
  return info.marks.empty() ? "" : "\033[33m";
}

std::string shape_of(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::string part_of(const TensorListing& tensor) {
  if (tensor.global_shape.empty()) return "";
  return fmt::format("of {} at {}", shape_of(tensor.global_shape), shape_of(tensor.global_offsets));
}

std::string shortened(const std::optional<double>& value) { return value ? fmt::format("{:.6g}", *value) : "-"; }

}  // namespace

void print_table(Report& report, const std::vector<CheckpointInfo>& list, bool color) {
  Table table({{"STEP", right},
               {"STATE", left},
               {"ID", left},
               {"SHARDS", right},
               {"FILES", right},
               {"TENSORS", right},
               {"RAW", right},
               {"STORED", right},
               {"RATIO", right},
               {"TIME", left},
               {"META", left}});
  for (const CheckpointInfo& info : list) {
    const double ratio = static_cast<double>(info.raw_bytes) / static_cast<double>(info.stored_bytes);
    table.row({std::to_string(info.step), state_of(info), info.id.substr(0, 12), std::to_string(info.shards),
               std::to_string(info.files), std::to_string(info.tensors), human_bytes(info.raw_bytes),
               human_bytes(info.stored_bytes), info.stored_bytes == 0 ? "-" : fmt::format("{:.2f}", ratio),
               info.created ? rfc3339_utc(*info.created) : "-",
               info.state_detail.empty() ? joined(info.meta) : info.state_detail},
              color ? color_of(info) : "");
  }
  table.print(report);
}

void print_table(Report& report, const std::vector<PendingInfo>& list, bool) {
  Table table(
      {{"STEP", right}, {"STATE", left}, {"ATTEMPT", right}, {"RANKS", left}, {"AGE", right}, {"REASON", left}});
  for (const PendingInfo& info : list) {
    const std::string ranks = info.rank ? fmt::format("rank {} of {}", *info.rank, info.world_size)
                              : info.state == SaveState::skipped
                                  ? fmt::format("all of {}", info.world_size)
                                  : fmt::format("{} of {}", info.ranks_present.size(), info.world_size);
    table.row({std::to_string(info.step), std::string(to_string(info.state)), std::to_string(info.attempt), ranks,
               human_duration(info.age_seconds), info.reason});
  }
  table.print(report);
}

void print_table(Report& report, const std::vector<FileInfo>& list, bool) {
  Table table({{"RANK", right},
               {"MODE", left},
               {"SIZE", right},
               {"MODIFIED", left},
               {"KIND", left},
               {"TENSORS", right},
               {"NAME", left}});
  for (const FileInfo& info : list) {
    const std::string target = info.target.empty() ? "" : (info.type == "symlink" ? " -> " : " = ") + info.target;
    const std::string note = info.note.empty() ? "" : " (" + info.note + ")";
    table.row({std::to_string(info.rank), fmt::format("{:04o}", info.mode & 07777), human_bytes(info.size),
               rfc3339_utc(info.mtime_ns / 1'000'000'000), info.type == "file" ? info.kind : info.type,
               std::to_string(info.tensors), info.path + target + note});
  }
  table.print(report);
}

void print_table(Report& report, const std::vector<TensorListing>& list, bool) {
  std::vector<Column> columns = {{"RANK", right}, {"FILE", left},  {"NAME", left}, {"DTYPE", left},
                                 {"SHAPE", left}, {"SIZE", right}, {"PART", left}};
  const bool with_stats =
      std::any_of(list.begin(), list.end(), [](const TensorListing& tensor) { return tensor.stats.has_value(); });
  if (with_stats) {
    const std::vector<Column> more = {{"MIN", right},  {"MAX", right}, {"MEAN", right},
                                      {"NORM", right}, {"NAN", right}, {"INF", right}};
    columns.insert(columns.end(), more.begin(), more.end());
  }
  Table table(columns);
  for (const TensorListing& tensor : list) {
    std::vector<std::string> cells = {std::to_string(tensor.rank),
                                      tensor.file,
                                      tensor.name,
                                      tensor.dtype + (tensor.layout == "strided" ? "" : " " + tensor.layout),
                                      shape_of(tensor.shape),
                                      tensor.meta ? "-" : human_bytes(tensor.bytes),
                                      part_of(tensor)};
    if (with_stats) {
      const TensorStats stats = tensor.stats.value_or(TensorStats{});
      for (const auto& value : {stats.min, stats.max, stats.mean, stats.norm}) cells.push_back(shortened(value));
      for (const auto count : {stats.nan, stats.inf}) cells.push_back(std::to_string(count));
    }
    table.row(cells);
  }
  table.print(report);
}

void print_table(Report& report, const std::vector<FileSum>& list, bool) {
  for (const FileSum& sum : list) report.styled_line(fmt::format("{}  {}", sum.xxh128, sum.path));
}

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
// Columns are a stable interface, in this order, documented in ckpt-output(5): new ones go to the end.
#include "ls_records.hpp"

#include <fmt/format.h>

#include <optional>

#include "cli/quantities.hpp"

namespace ckpt::cli {
namespace {

std::optional<double> ratio_of(const CheckpointInfo& info) {
  if (info.stored_bytes == 0) return std::nullopt;
  return static_cast<double>(info.raw_bytes) / static_cast<double>(info.stored_bytes);
}

FieldValue list_or_none(const std::vector<std::int64_t>& list) {
  if (list.empty()) return std::monostate{};
  return list;
}

}  // namespace

Record record_of(const CheckpointInfo& info) {
  FieldValue time;
  if (info.created) time = rfc3339_utc(*info.created);
  return {"checkpoint",
          {{"step", info.step},
           {"state", info.state},
           {"id", text_or_none(info.id)},
           {"attempt", info.attempt},
           {"world_size", std::uint64_t{info.world_size}},
           {"shards", info.shards},
           {"files", info.files},
           {"tensors", info.tensors},
           {"raw_bytes", info.raw_bytes},
           {"stored_bytes", info.stored_bytes},
           {"ratio", field_of(ratio_of(info))},
           {"time", time},
           {"meta", info.meta},
           {"marks", info.marks},
           {"detail", text_or_none(info.state_detail)},
           {"retired", info.retired}}};
}

Record record_of(const PendingInfo& info) {
  const std::vector<std::int64_t> ranks(info.ranks_present.begin(), info.ranks_present.end());
  FieldValue rank;
  if (info.rank) rank = std::uint64_t{*info.rank};
  return {"pending",
          {{"step", info.step},
           {"state", std::string(to_string(info.state))},
           {"attempt", info.attempt},
           {"world_size", std::uint64_t{info.world_size}},
           {"ranks_present", ranks},
           {"age_seconds", info.age_seconds},
           {"reason", text_or_none(info.reason)},
           {"rank", rank},
           {"path", text_or_none(info.path)},
           {"raw_bytes", info.raw_bytes}}};
}

Record record_of(const FileInfo& info) {
  return {"file",
          {{"rank", std::uint64_t{info.rank}},
           {"name", info.path},
           {"file_type", info.type},
           {"kind", text_or_none(info.kind)},
           {"mode", fmt::format("{:04o}", info.mode & 07777)},
           {"size", info.size},
           {"mtime", rfc3339_utc_ns(info.mtime_ns)},
           {"tensors", info.tensors},
           {"target", text_or_none(info.target)},
           {"note", text_or_none(info.note)}}};
}

Record record_of(const TensorListing& tensor) {
  const TensorStats stats = tensor.stats.value_or(TensorStats{});
  const auto counted = [&](std::uint64_t count) { return tensor.stats ? FieldValue(count) : FieldValue(); };
  return {"tensor",
          {{"rank", std::uint64_t{tensor.rank}},
           {"file", tensor.file},
           {"name", tensor.name},
           {"dtype", tensor.dtype},
           {"layout", tensor.layout},
           {"shape", tensor.shape},
           {"global_shape", list_or_none(tensor.global_shape)},
           {"global_offsets", list_or_none(tensor.global_offsets)},
           {"bytes", tensor.bytes},
           {"meta", tensor.meta},
           {"min", field_of(stats.min)},
           {"max", field_of(stats.max)},
           {"mean", field_of(stats.mean)},
           {"norm", field_of(stats.norm)},
           {"nan", counted(stats.nan)},
           {"inf", counted(stats.inf)}}};
}

Record record_of(const FileSum& sum) { return {"sum", {{"xxh128", sum.xxh128}, {"name", sum.path}}}; }

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
#include "bench_report.hpp"

#include <string>
#include <string_view>
#include <vector>

#include "cli/record.hpp"

namespace ckpt::cli {
namespace {

/// Keys are literals: three for each time.
struct TimeKeys {
  std::string_view seconds, to_memcpy, to_device;
};

void add(std::vector<Field>& fields, const TimeKeys& keys, const BenchTime& time) {
  fields.push_back({keys.seconds, time.seconds});
  fields.push_back({keys.to_memcpy, time.to_memcpy});
  fields.push_back({keys.to_device, time.to_device});
}

Record way_record(const BenchWayReport& way) {
  Record record{"way", {{"way", std::string(to_string(way.way))}}};
  std::vector<Field>& fields = record.fields;
  add(fields, {"file_seconds", "file_to_memcpy", "file_to_device"}, way.file);
  add(fields, {"stall_seconds", "stall_to_memcpy", "stall_to_device"}, way.stall);
  add(fields, {"longest_stall_seconds", "longest_stall_to_memcpy", "longest_stall_to_device"}, way.longest_stall);
  add(fields, {"staged_seconds", "staged_to_memcpy", "staged_to_device"}, way.staged);
  add(fields, {"written_seconds", "written_to_memcpy", "written_to_device"}, way.written);
  add(fields, {"durable_seconds", "durable_to_memcpy", "durable_to_device"}, way.durable);
  add(fields, {"fault_seconds", "fault_to_memcpy", "fault_to_device"}, way.fault);
  add(fields, {"lost_seconds", "lost_to_memcpy", "lost_to_device"}, way.lost);
  add(fields, {"loop_seconds", "loop_to_memcpy", "loop_to_device"}, way.loop);
  add(fields, {"total_seconds", "total_to_memcpy", "total_to_device"}, way.total);
  for (const Field& field : std::vector<Field>{{"utilisation", way.utilisation},
                                               {"step_seconds", way.step_seconds},
                                               {"alone_seconds", way.alone_seconds},
                                               {"slow_down", way.slow_down},
                                               {"slow_seconds", way.slow_seconds},
                                               {"memory_bytes", way.memory_bytes},
                                               {"aside_bytes", way.aside_bytes},
                                               {"worker_memory_bytes", way.worker_memory_bytes},
                                               {"saves", std::uint64_t{way.saves.size()}},
                                               {"raw_bytes", way.raw_bytes},
                                               {"stored_bytes", way.stored_bytes},
                                               {"note", text_or_none(way.note)}}) {
    fields.push_back(field);
  }
  return record;
}

Record read_record(const BenchReport& measured) {
  Record record{"read", {}};
  add(record.fields, {"restore_seconds", "restore_to_memcpy", "restore_to_device"}, measured.restore);
  add(record.fields, {"verify_seconds", "verify_to_memcpy", "verify_to_device"}, measured.verify);
  return record;
}

Record device_record(const BenchDevice& device, bool is_store) {
  return {"device",
          {{"path", device.path},
           {"kind", device.kind},
           {"store", is_store},
           {"memory", device.is_memory},
           {"network", device.is_network},
           {"write_rate", device.write_rate},
           {"read_rate", device.read_rate},
           {"free_bytes", device.free_bytes}}};
}

Record machine_record(const BenchReport& measured) {
  const BenchMachine& machine = measured.machine;
  return {"machine",
          {{"cores", std::uint64_t{machine.cores}},
           {"memcpy_rate", machine.memcpy_rate},
           {"hash_rate", machine.hash_rate},
           {"can_protect", machine.can_protect},
           {"why_not_protect", text_or_none(machine.why_not_protect)},
           {"step_seconds", measured.step_seconds}}};
}

Record interval_record(const BenchInterval& interval) {
  return {"interval",
          {{"way", std::string(to_string(interval.way))},
           {"young_seconds", interval.best.young_seconds},
           {"daly_seconds", interval.best.daly_seconds},
           {"daly_lost_share", interval.best.lost_share},
           {"recovery_seconds", interval.recovery_seconds},
           {"interval_seconds", interval.interval_seconds},
           {"lost_share", interval.lost_share}}};
}

void put_json(Report& report, const BenchReport& measured) {
  const BenchOptions& options = measured.options;
  report.header({{"store", options.store},
                 {"state_bytes", options.state_bytes},
                 {"tensors", std::uint64_t{options.tensors}},
                 {"ranks", std::uint64_t{options.ranks}},
                 {"threads", std::uint64_t{options.threads}},
                 {"jobs", std::uint64_t{options.jobs}},
                 {"steps", std::uint64_t{options.steps}},
                 {"update", options.update},
                 {"mtbf_seconds", field_of(options.mtbf_seconds)}});
  report.record(machine_record(measured));
  report.record(device_record(measured.device, true));
  for (const BenchDevice& device : measured.devices) report.record(device_record(device, false));
  for (const BenchWayReport& way : measured.ways) report.record(way_record(way));
  report.record(read_record(measured));
  for (const BenchInterval& interval : measured.intervals) report.record(interval_record(interval));
  for (const BenchAdvice& advice : measured.advice)
    report.record({"advice", {{"topic", advice.topic}, {"text", advice.text}}});
  report.summary({{"seconds", measured.seconds}});
}

}  // namespace

void put_bench(Report& report, const BenchReport& measured) {
  switch (report.format()) {
    case Format::human: print_bench_tables(report, measured); break;
    case Format::json: put_json(report, measured); break;
    case Format::tsv:
      for (const BenchWayReport& way : measured.ways) report.record(way_record(way));
      break;
  }
}

}  // namespace ckpt::cli

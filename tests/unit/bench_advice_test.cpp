// SPDX-License-Identifier: Apache-2.0
// What is said about numbers, each advice on a report that asks for it; and the picture of one.
#include <ckpt/bench.hpp>

#include <doctest/doctest.h>
#include <string>

namespace {

using namespace ckpt;

constexpr double gb = 1e9;

BenchWayReport way_of(BenchWay which, double stall, double lost, double durable) {
  BenchWayReport way;
  way.way = which;
  way.stall.seconds = stall;
  way.lost.seconds = lost;
  way.written.seconds = way.durable.seconds = durable;
  way.raw_bytes = way.stored_bytes = 2'000'000'000;
  way.steps = {{.begin = 0, .end = 0.1}, {.begin = 0.1, .end = 0.2}};
  way.saves = {{.step = 1, .begin = 0.1, .resumed = 0.1 + stall, .staged = 0.2, .written = 1, .durable = durable},
               {.step = 2, .begin = 0.2, .resumed = 0.2 + stall, .staged = 0.3, .written = 1, .durable = durable}};
  way.loop.seconds = way.total.seconds = 2;
  return way;
}

/// A state of 1 GB on a device of 1 GB/s: the synchronous save takes as long as the device.
BenchReport report_of() {
  BenchReport report;
  report.options.mtbf_seconds = 3600;
  report.machine = {.cores = 2, .memcpy_rate = 10 * gb, .hash_rate = 10 * gb, .can_protect = true};
  report.device = {.path = "store", .kind = "ext4", .write_rate = gb, .read_rate = 2 * gb, .free_bytes = 1U << 31U};
  report.step_seconds = 0.1;
  report.ways = {way_of(BenchWay::synchronous, 1.1, 1.1, 1.1), way_of(BenchWay::detached, 0.5, 0.6, 2.5),
                 way_of(BenchWay::in_process, 0.01, 0.05, 1.5)};
  for (const BenchWayReport& way : report.ways) {
    BenchInterval interval{.way = way.way};
    interval.best = best_interval(way.lost.seconds, 1, 3600);
    interval.interval_seconds = interval.best.daly_seconds;
    report.intervals.push_back(interval);
  }
  return report;
}

std::string said(const BenchReport& report, const std::string& topic) {
  for (const BenchAdvice& advice : advise(report)) {
    if (advice.topic == topic) return advice.text;
  }
  return {};
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_SUITE("bench advice") {
  TEST_CASE("a save at the device's speed: the device is the bottleneck") {
    CHECK(holds(said(report_of(), "bottleneck"), "The device"));
  }

  TEST_CASE("a save far below the device's speed: the processor is, if it encodes") {
    BenchReport report = report_of();
    report.ways[0].written.seconds = 5;
    CHECK(holds(said(report, "bottleneck"), "The processor"));
    CHECK(holds(said(report, "bottleneck"), "--encode=raw"));
    report.options.encode = Encode::raw;
    CHECK(holds(said(report, "bottleneck"), "Reading and checking"));
  }

  TEST_CASE("a trainer's file that takes longer than the save is the bottleneck") {
    BenchReport report = report_of();
    report.ways[0].written.seconds = 10;
    report.ways[0].file.seconds = 8;
    CHECK(holds(said(report, "bottleneck"), "own file"));
  }

  TEST_CASE("the way that costs the loop least is named") {
    BenchReport report = report_of();
    CHECK(holds(said(report, "way"), "Save in-process"));
    report.ways[2].lost.seconds = 3;
    CHECK(holds(said(report, "way"), "Save detached"));
  }

  TEST_CASE("memory is spoken of where it can't be protected, or much of it is copied") {
    BenchReport report = report_of();
    CHECK(said(report, "memory").empty());
    report.ways[2].aside_bytes = 900'000'000;
    CHECK(holds(said(report, "memory"), "90 %"));
    report.machine.can_protect = false;
    report.machine.why_not_protect = "no userfaultfd";
    CHECK(holds(said(report, "memory"), "no userfaultfd"));
  }

  TEST_CASE("no store is advised in memory, and a spool there with a warning") {
    BenchReport report = report_of();
    report.devices = {
        {.path = "/shm", .kind = "tmpfs", .is_memory = true, .write_rate = 5 * gb, .free_bytes = 1U << 31U}};
    CHECK(holds(said(report, "store"), "'store'"));
    CHECK(holds(said(report, "spool"), "'/shm'"));
    CHECK(holds(said(report, "spool"), "--max-staged"));
    report.device.is_memory = true;
    CHECK(holds(said(report, "store"), "none is a place"));
  }

  TEST_CASE("a place without room isn't advised, and a network mount is one for a replica") {
    BenchReport report = report_of();
    report.devices = {
        {.path = "/small", .kind = "xfs", .write_rate = 9 * gb, .free_bytes = 1000},
        {.path = "/net", .kind = "nfs", .is_network = true, .write_rate = gb / 10, .free_bytes = 1U << 31U}};
    CHECK(holds(said(report, "store"), "'store'"));
    CHECK(holds(said(report, "store"), "'/net'"));
    CHECK_FALSE(holds(said(report, "spool"), "/small"));
  }

  TEST_CASE("servers are as many as the rate needs") {
    BenchReport report = report_of();
    CHECK(holds(said(report, "servers"), "takes 1,"));
    // 1 GB a second comes in, half of that is stored.
    report.intervals[1].best.daly_seconds = 1;
    CHECK(holds(said(report, "servers"), "takes 2,"));
    CHECK(holds(said(report, "replicas"), "enough for 2"));
  }

  TEST_CASE("without a time between failures nothing is said of intervals and servers") {
    BenchReport report = report_of();
    report.intervals.clear();
    CHECK(said(report, "interval").empty());
    CHECK(said(report, "servers").empty());
  }

  TEST_CASE("an interval that is shorter than a save lasts is said to be") {
    BenchReport report = report_of();
    report.intervals[2].interval_seconds = report.intervals[2].best.daly_seconds + 1;
    CHECK(holds(said(report, "interval"), "isn't durable sooner"));
  }

  TEST_CASE("a report without ways gives no advice, and a picture all the same") {
    CHECK(advise(BenchReport()).empty());
    CHECK(holds(draw_bench(BenchReport()), "</svg>"));
  }

  TEST_CASE("the picture has each way, the same each time") {
    const BenchReport report = report_of();
    const std::string picture = draw_bench(report);
    for (const char* name : {"synchronous", "detached", "in-process", "step (ms)", "(s)", "until durable"})
      CHECK(holds(picture, name));
    CHECK(picture == draw_bench(report));
  }
}

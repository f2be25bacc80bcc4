// SPDX-License-Identifier: Apache-2.0
// One run: the machine, a loop without saves, the same loop in each way of saving, reading back, and what follows.
#include <ckpt/bench.hpp>

#include "bench/bench_door.hpp"
#include "bench/bench_loop.hpp"
#include "bench/bench_machine.hpp"
#include "bench/bench_place.hpp"
#include "bench/bench_state.hpp"
#include "bench/bench_watch.hpp"
#include "core/stop.hpp"
#include "os/small_file.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>
#include <ckpt/restore.hpp>
#include <ckpt/verify.hpp>

#include <malloc.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace ckpt {

BenchWorkers::~BenchWorkers() = default;

std::string_view to_string(BenchWay way) {
  switch (way) {
    case BenchWay::detached: return "detached";
    case BenchWay::in_process: return "in_process";
    default: return "synchronous";
  }
}

namespace measure {
namespace {

constexpr std::array<BenchWay, 3> all_ways = {BenchWay::synchronous, BenchWay::detached, BenchWay::in_process};
constexpr auto look_again = std::chrono::milliseconds(2);

/// What is measured passes warnings on, and stops when the bench is to.
class InnerMonitor final : public Monitor {
 public:
  explicit InnerMonitor(Monitor& inner) : inner_(inner) {}
  void warning(std::string_view message) override { inner_.warning(message); }
  [[nodiscard]] bool stop_requested() const override { return inner_.stop_requested(); }

 private:
  Monitor& inner_;
};

BenchOptions completed(BenchOptions options) {
  if (options.ranks == 0 || options.tensors == 0 || options.steps == 0 || options.saves == 0)
    throw Error(Errc::invalid_argument, "ranks, tensors, steps and saves are 1 or more");
  if (options.saves > options.steps) throw Error(Errc::invalid_argument, "there are more saves than steps");
  if (!(options.update >= 0 && options.update <= 1))
    throw Error(Errc::invalid_argument, "the share of the state that changes is between 0 and 1");
  if (options.mtbf_seconds && !(*options.mtbf_seconds > 0))
    throw Error(Errc::invalid_argument, "the time between failures must be above 0");
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  if (options.threads == 0) options.threads = std::max(1U, cores - 1);
  if (options.jobs == 0) options.jobs = std::max(1U, cores / options.ranks);
  for (std::string* path : {&options.store, &options.spool}) {
    while (path->size() > 1 && path->back() == '/') path->pop_back();
  }
  return options;
}

struct StepTimes {
  double seconds = 0;
  std::uint64_t count = 0;

  void add(double more) {
    seconds += more;
    ++count;
  }
  StepTimes& operator+=(const StepTimes& other) {
    seconds += other.seconds;
    count += other.count;
    return *this;
  }
  [[nodiscard]] double mean() const { return count == 0 ? 0 : seconds / static_cast<double>(count); }
};

class Bench {
 public:
  Bench(const BenchOptions& options, BenchWorkers& workers, Monitor& monitor)
      : workers_(workers), monitor_(monitor), inner_(monitor), place_(options.store, options.keep, monitor) {
    // The store is there by now, and may be called otherwise here.
    std::error_code error;
    if (!options.spool.empty() && !std::filesystem::equivalent(options.spool, options.store, error))
      spool_place_.emplace(options.spool, options.keep, monitor);
    report_.options = options;
  }

  BenchReport run() {
    const auto start = Clock::now();
    State state(options().state_bytes, options().ranks, options().tensors, options().seed);
    state_bytes_ = state.bytes();
    state.reset(options().threads);
    monitor_.note("measuring memory and devices");
    report_.machine = measure_machine(state_bytes_);
    report_.device = measure_device(place_.path(), state_bytes_, monitor_);
    for (const std::string& path : options().paths)
      report_.devices.push_back(measure_device(path, state_bytes_, monitor_));
    {
      ComputeLoop loop(state, options().threads, options().update);
      loop.calibrate(options().step_seconds);
      run_alone(loop);
      for (const BenchWay way : all_ways) {
        state.reset(options().threads);
        run_way(loop, state, way);
        run_alone(loop);
      }
      StepTimes all;
      for (const StepTimes& times : alone_) all += times;
      report_.step_seconds = all.mean();
      for (std::size_t i = 0; i < report_.ways.size(); ++i) sum_up_steps(report_.ways[i], alone_[i], alone_[i + 1]);
    }
    read_back();
    choose_intervals();
    report_.advice = advise(report_);
    report_.seconds = seconds_since(start);
    return std::move(report_);
  }

 private:
  [[nodiscard]] const BenchOptions& options() const { return report_.options; }

  void count_step(std::string_view stage) {
    require_no_stop(monitor_);
    done_ += state_bytes_;
    const std::uint64_t steps = all_ways.size() * options().steps + (all_ways.size() + 1) * steps_alone();
    monitor_.progress({.stage = stage, .done = done_, .total = steps * state_bytes_});
  }

  [[nodiscard]] BenchTime time_of(double seconds, double device_rate) const {
    const auto bytes = static_cast<double>(state_bytes_);
    return {.seconds = seconds,
            .to_memcpy = seconds * report_.machine.memcpy_rate / bytes,
            .to_device = seconds * device_rate / bytes};
  }
  [[nodiscard]] BenchTime written_in(double seconds) const { return time_of(seconds, report_.device.write_rate); }

  /// Between the ways, so that what else the machine does weighs on all alike.
  void run_alone(ComputeLoop& loop) {
    StepTimes times;
    for (std::uint32_t number = 1; number <= steps_alone(); ++number) {
      const auto start = Clock::now();
      loop.step(number);
      times.add(seconds_since(start));
      count_step("alone");
    }
    alone_.push_back(times);
  }

  [[nodiscard]] std::uint32_t steps_alone() const { return options().steps / 4 + 1; }

  void run_way(ComputeLoop& loop, const State& state, BenchWay way) {
    monitor_.note(std::string(to_string(way)) + " saves");
    // What is moved into a spool is on its file system.
    const bool has_spool = way == BenchWay::detached && spool_place_.has_value();
    const std::string files = (has_spool ? *spool_place_ : place_).sub("state");
    const std::string spool = has_spool ? spool_place_->sub("spool") : std::string();
    (void)os::make_directory(files);
    // What earlier ways needed is no part of this one's.
    (void)::malloc_trim(0);
    const std::uint64_t memory = anonymous_memory();
    const std::unique_ptr<SaveDoor> door =
        open_door(way, {options(), state, place_.sub(store_of(way)), files, spool, workers_, inner_});
    BenchWayReport report;
    report.way = way;
    const auto start = Clock::now();
    {
      SaveWatch watch(*door, start);
      std::uint32_t saved = 0;
      for (std::uint32_t number = 1; number <= options().steps; ++number) {
        const double begin = seconds_since(start);
        loop.step(number);
        report.steps.push_back({.begin = begin, .end = seconds_since(start)});
        count_step(to_string(way));
        // Evenly spaced, with as many steps before the first as after the last.
        const std::uint64_t due =
            (2 * std::uint64_t{saved} + 1) * options().steps / (std::uint64_t{2} * options().saves);
        if (saved < options().saves && number > due) {
          watch.save(number);
          ++saved;
        }
      }
      report.loop.seconds = seconds_since(start);
      while (!watch.is_over()) {
        require_no_stop(monitor_);
        std::this_thread::sleep_for(look_again);
      }
      report.saves = watch.saves();
      report.memory_bytes = watch.peak_memory() - std::min(memory, watch.peak_memory());
    }
    door->finish(report);
    report.raw_bytes = state_bytes_ * report.saves.size();
    sum_up(report);
    report_.ways.push_back(std::move(report));
  }

  static std::string store_of(BenchWay way) {
    return way == BenchWay::in_process ? "in-process" : std::string(to_string(way));
  }

  void sum_up(BenchWayReport& report) const {
    const auto count = static_cast<double>(report.saves.size());
    double file = 0, stall = 0, longest = 0, staged = 0, written = 0, durable = 0, last = report.loop.seconds;
    for (const BenchSave& save : report.saves) {
      file += (save.file - save.begin) / count;
      stall += (save.resumed - save.begin) / count;
      longest = std::max(longest, save.resumed - save.begin);
      staged += (save.staged - save.begin) / count;
      written += (save.written - save.begin) / count;
      durable += (save.durable - save.begin) / count;
      last = std::max(last, save.durable);
    }
    report.file = written_in(file);
    report.stall = written_in(stall);
    report.longest_stall = written_in(longest);
    report.staged = written_in(staged);
    report.written = written_in(written);
    report.durable = written_in(durable);
    report.fault = written_in(report.fault.seconds);
    report.loop = written_in(report.loop.seconds);
    report.total = written_in(last);
  }

  /// `before` and `after`: steps without saves, right before and after this way's loop.
  void sum_up_steps(BenchWayReport& report, const StepTimes& before, const StepTimes& after) const {
    StepTimes alone = before;
    alone += after;
    StepTimes beside;
    StepTimes all;
    double overlap = 0;
    for (const BenchStep& step : report.steps) {
      double own = 0;
      for (const BenchSave& save : report.saves)
        own = std::max(own, std::min(step.end, save.durable) - std::max(step.begin, save.resumed));
      (own > 0 ? beside : alone).add(step.end - step.begin);
      all.add(step.end - step.begin);
      overlap += std::max(own, 0.0);
    }
    const auto saves = static_cast<double>(report.saves.size());
    report.alone_seconds = alone.mean();
    report.step_seconds = all.mean();
    report.slow_seconds = overlap / saves;
    if (beside.count > 0) report.slow_down = beside.mean() / alone.mean();
    const double slow = beside.seconds - alone.mean() * static_cast<double>(beside.count);
    report.lost = written_in(report.stall.seconds + std::max(slow, 0.0) / saves);
    report.utilisation = std::max(0.0, 1 - report.lost.seconds * saves / report.loop.seconds);
  }

  void read_back() {
    monitor_.note("restore and verify");
    const std::string store = place_.sub(store_of(BenchWay::synchronous));
    RestoreOptions restoring;
    restoring.from.store = store;
    restoring.directory = place_.sub("restored");
    auto start = Clock::now();
    (void)restore(restoring, inner_);
    report_.restore = written_in(seconds_since(start));
    VerifyOptions verifying;
    verifying.what.store = store;
    start = Clock::now();
    const VerifyReport verified = verify(verifying, inner_);
    if (!verified.intact() || verified.checkpoints == 0)
      throw Error(Errc::damaged, "what was saved isn't what is stored: " + store);
    report_.verify =
        time_of(seconds_since(start) / static_cast<double>(verified.checkpoints), report_.device.read_rate);
  }

  void choose_intervals() {
    if (!options().mtbf_seconds) return;
    for (const BenchWayReport& way : report_.ways) {
      BenchInterval interval;
      interval.way = way.way;
      // A failure before a save is durable goes back to the one before.
      interval.recovery_seconds = report_.restore.seconds + std::max(0.0, way.durable.seconds - way.stall.seconds);
      const double cost = way.lost.seconds;
      interval.best = best_interval(cost, interval.recovery_seconds, *options().mtbf_seconds);
      interval.interval_seconds = std::max(interval.best.daly_seconds, way.durable.seconds);
      interval.lost_share =
          lost_share(interval.interval_seconds, cost, interval.recovery_seconds, *options().mtbf_seconds);
      report_.intervals.push_back(interval);
    }
  }

  BenchReport report_;
  BenchWorkers& workers_;
  Monitor& monitor_;
  InnerMonitor inner_;
  BenchPlace place_;
  std::optional<BenchPlace> spool_place_;
  std::uint64_t state_bytes_ = 0;
  std::uint64_t done_ = 0;
  std::vector<StepTimes> alone_;  ///< before the first way, and after each
};

}  // namespace
}  // namespace measure

BenchReport bench(const BenchOptions& options, BenchWorkers& workers, Monitor& monitor) {
  return measure::Bench(measure::completed(options), workers, monitor).run();
}

}  // namespace ckpt

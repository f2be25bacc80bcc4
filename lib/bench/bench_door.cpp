// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_door.hpp"

#include "bench/bench_ranks.hpp"
#include "os/fd.hpp"
#include "store/layout.hpp"
#include "store/store.hpp"

#include <ckpt/ckpt.h>
#include <ckpt/save.hpp>
#include <ckpt/stage.hpp>
#include <ckpt/wait.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::measure {
namespace {

/// Several ranks speak at once, and the progress of one save is none of the bench's.
class RankMonitor final : public Monitor {
 public:
  explicit RankMonitor(Monitor& inner) : inner_(inner) {}
  void warning(std::string_view message) override {
    const std::lock_guard lock(mutex_);
    inner_.warning(message);
  }
  [[nodiscard]] bool stop_requested() const override { return inner_.stop_requested(); }

 private:
  Monitor& inner_;
  std::mutex mutex_;
};

std::string file_of(const DoorSettings& settings, std::size_t rank) {
  return fmt::format("{}/state-{:05}.safetensors", settings.files, rank);
}

SaveOptions options_of(const DoorSettings& settings, std::uint64_t step, std::size_t rank) {
  SaveOptions save;
  save.store = settings.store;
  save.step = step;
  save.sources = {file_of(settings, rank)};
  save.rank = static_cast<std::uint32_t>(rank);
  save.world_size = settings.options.ranks;
  save.encode = settings.options.encode;
  save.jobs = settings.options.jobs;
  return save;
}

/// Bytes of what the store holds at a step.
std::uint64_t stored_bytes(const std::string& store, std::uint64_t step) {
  const auto found = store::Store::open(store).find(step);
  return found ? found->manifest.stored_bytes() : 0;
}

class SynchronousDoor final : public SaveDoor {
 public:
  explicit SynchronousDoor(DoorSettings settings) : settings_(std::move(settings)), monitor_(settings_.monitor) {}

  void begin(BenchSave& save, Clock::time_point start) override {
    const std::size_t ranks = settings_.state.ranks();
    std::vector<double> files(ranks);
    std::vector<double> written(ranks);
    on_each_rank(ranks, [&](std::size_t rank) {
      settings_.state.write_file(rank, file_of(settings_, rank));
      files[rank] = seconds_since(start);
      const SaveReport report = ckpt::save(options_of(settings_, save.step, rank), monitor_);
      written[rank] = std::max(files[rank], seconds_since(start) - report.commit_seconds);
    });
    save.file = *std::max_element(files.begin(), files.end());
    save.written = *std::max_element(written.begin(), written.end());
    save.staged = save.durable = seconds_since(start);
    steps_.push_back(save.step);
  }
  void look(BenchSave&, Clock::time_point) override {}
  void finish(BenchWayReport& report) override {
    for (const std::uint64_t step : steps_) report.stored_bytes += stored_bytes(settings_.store, step);
  }

 private:
  const DoorSettings settings_;
  RankMonitor monitor_;
  std::vector<std::uint64_t> steps_;
};

class DetachedDoor final : public SaveDoor {
 public:
  explicit DetachedDoor(DoorSettings settings) : settings_(std::move(settings)), monitor_(settings_.monitor) {}
  DetachedDoor(const DetachedDoor&) = delete;
  DetachedDoor& operator=(const DetachedDoor&) = delete;
  ~DetachedDoor() override {
    try {
      if (!finished_) (void)settings_.workers.finish(true);
    } catch (const std::exception& error) {
      monitor_.warning(error.what());
    }
  }

  void begin(BenchSave& save, Clock::time_point start) override {
    const std::size_t ranks = settings_.state.ranks();
    std::vector<double> files(ranks);
    on_each_rank(ranks, [&](std::size_t rank) {
      settings_.state.write_file(rank, file_of(settings_, rank));
      files[rank] = seconds_since(start);
      StageOptions options;
      options.save = options_of(settings_, save.step, rank);
      options.consume = true;
      options.spool = settings_.spool;
      options.start_worker = [&](const std::string& spool) { settings_.workers.start(settings_.store, spool); };
      const StageReport staged = stage(options, monitor_);
      settings_.workers.start(settings_.store, staged.door);
    });
    save.file = *std::max_element(files.begin(), files.end());
    save.staged = seconds_since(start);
    steps_.push_back(save.step);
  }

  void look(BenchSave& save, Clock::time_point start) override {
    if (save.durable > 0) return;
    const bool is_durable = os::exists(committed(save.step));
    const double now = seconds_since(start);
    if (save.written == 0 && (is_durable || has_all_shards(save.step))) save.written = now;
    if (is_durable) save.durable = now;
    if (!is_durable && now > next_check_) {
      require_no_failure();
      next_check_ = now + 1;
    }
  }

  void finish(BenchWayReport& report) override {
    report.worker_memory_bytes = settings_.workers.finish(false);
    finished_ = true;
    for (const std::uint64_t step : steps_) report.stored_bytes += stored_bytes(settings_.store, step);
  }

 private:
  [[nodiscard]] std::string committed(std::uint64_t step) const {
    return settings_.store + "/" + store::step_name(step) + "/" + store::manifest_file;
  }
  /// A save that its worker gave up on is never durable.
  void require_no_failure() {
    // The worker makes the store.
    if (!os::exists(settings_.store + "/" + store::description_file)) return;
    WaitOptions options;
    options.what.store = settings_.store;
    if (!settings_.spool.empty()) options.spools = {settings_.spool};
    options.timeout_seconds = 0;
    for (const WaitOutcome& outcome : wait(options, monitor_).outcomes) {
      if (outcome.state == SaveState::failed)
        throw Error(Errc::io, fmt::format("a detached save failed: {}", outcome.reason));
    }
  }
  [[nodiscard]] bool has_all_shards(std::uint64_t step) const {
    const std::uint32_t ranks = settings_.options.ranks;
    const std::string set = settings_.store + "/.pending/" + store::set_name({.step = step, .world_size = ranks});
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      if (!os::exists(set + "/" + store::shard_name({.rank = rank, .world_size = ranks}))) return false;
    }
    return true;
  }

  const DoorSettings settings_;
  RankMonitor monitor_;
  std::vector<std::uint64_t> steps_;
  double next_check_ = 1;
  bool finished_ = false;
};

void demand(int status) {
  switch (status) {
    case CKPT_OK: return;
    case CKPT_NO_SPACE: throw Error(Errc::no_space, ckpt_message());
    case CKPT_INVALID: throw Error(Errc::invalid_argument, ckpt_message());
    case CKPT_BUSY:
    case CKPT_NO_MEMORY:
    case CKPT_TIMED_OUT: throw Error(Errc::busy, ckpt_message());
    default: throw Error(Errc::io, ckpt_message());
  }
}

const char* name_of(Encode encode) {
  switch (encode) {
    case Encode::raw: return "raw";
    case Encode::best: return "best";
    default: return "fast";
  }
}

/// Through the C interface, as a trainer does it.
class InProcessDoor final : public SaveDoor {
 public:
  explicit InProcessDoor(DoorSettings settings) : settings_(std::move(settings)) {
    const std::string& store = settings_.store;
    for (std::uint32_t rank = 0; rank < settings_.options.ranks; ++rank) {
      ckpt_saver_options options;
      ckpt_saver_defaults(&options);
      options.store = store.c_str();
      options.rank = rank;
      options.world_size = options.local_world_size = settings_.options.ranks;
      options.encode = name_of(settings_.options.encode);
      options.jobs = settings_.options.jobs;
      ckpt_saver* saver = nullptr;
      const int status = ckpt_saver_open(&options, &saver);
      if (status != CKPT_OK) close();
      demand(status);
      savers_.push_back(saver);
    }
  }
  InProcessDoor(const InProcessDoor&) = delete;
  InProcessDoor& operator=(const InProcessDoor&) = delete;
  ~InProcessDoor() override { close(); }

  void begin(BenchSave& save, Clock::time_point start) override {
    Step& step = steps_.emplace_back();
    step.saves.resize(savers_.size());
    on_each_rank(savers_.size(), [&](std::size_t rank) { begin_rank(save.step, rank, step.saves[rank]); });
    save.file = save.begin;
    save.staged = seconds_since(start);
    step.number = save.step;
  }

  void look(BenchSave& save, Clock::time_point start) override {
    const auto step = std::find_if(steps_.begin(), steps_.end(), [&](const Step& s) { return s.number == save.step; });
    if (save.durable > 0 || step == steps_.end()) return;
    bool all_written = true;
    bool all_durable = true;
    for (ckpt_save* each : step->saves) {
      const ckpt_state state = ckpt_save_state(each);
      // Its message is for finish().
      if (state == CKPT_STATE_FAILED) demand(ckpt_save_wait(each, 0, 0));
      all_written = all_written && (state == CKPT_STATE_WRITTEN || state == CKPT_STATE_DURABLE);
      all_durable = all_durable && state == CKPT_STATE_DURABLE;
    }
    const double now = seconds_since(start);
    if (save.written == 0 && all_written) save.written = now;
    if (all_durable) save.durable = now;
  }

  void finish(BenchWayReport& report) override {
    for (const Step& step : steps_) {
      std::uint64_t aside = 0;
      report.stored_bytes += stored_bytes(settings_.store, step.number);
      for (const ckpt_save* each : step.saves) {
        ckpt_timings timings{};
        timings.struct_size = sizeof timings;
        demand(ckpt_save_timings(each, &timings));
        report.fault.seconds += timings.fault_seconds / static_cast<double>(steps_.size());
        aside += timings.peak_aside_bytes;
        if (timings.copied_bytes > 0) report.note = timings.why_copied;
      }
      report.aside_bytes = std::max(report.aside_bytes, aside);
    }
  }

 private:
  struct Step {
    std::uint64_t number = 0;
    std::vector<ckpt_save*> saves;
  };

  void begin_rank(std::uint64_t number, std::size_t rank, ckpt_save*& save) {
    demand(ckpt_save_new(savers_[rank], number, &save));
    for (const StateTensor& tensor : settings_.state.tensors()) {
      const auto floats = settings_.state.tensor(rank, tensor);
      std::uint64_t range = 0;
      demand(ckpt_save_memory(save, floats.data(), floats.size_bytes(), 0, &range));
      const auto shape = static_cast<std::int64_t>(floats.size());
      ckpt_tensor view{};
      view.struct_size = sizeof view;
      view.name = tensor.name.c_str();
      view.dtype = "float32";
      view.range = range;
      view.dims = 1;
      view.shape = &shape;
      demand(ckpt_save_tensor(save, &view));
    }
    // Started first: what has to be copied in waves needs the writer.
    demand(ckpt_save_start(save));
    demand(ckpt_save_freeze(save));
  }

  void close() {
    for (ckpt_saver* saver : savers_) (void)ckpt_saver_close(saver, -1);
    savers_.clear();
    for (const Step& step : steps_) {
      for (ckpt_save* save : step.saves) ckpt_save_free(save);
    }
    steps_.clear();
  }

  const DoorSettings settings_;
  std::vector<ckpt_saver*> savers_;
  std::vector<Step> steps_;
};

}  // namespace

std::unique_ptr<SaveDoor> open_door(BenchWay way, const DoorSettings& settings) {
  switch (way) {
    case BenchWay::detached: return std::make_unique<DetachedDoor>(settings);
    case BenchWay::in_process: return std::make_unique<InProcessDoor>(settings);
    default: return std::make_unique<SynchronousDoor>(settings);
  }
}

}  // namespace ckpt::measure

// SPDX-License-Identifier: Apache-2.0
#include "capi/save.hpp"

#include "ops/save_entries.hpp"
#include "os/fd.hpp"
#include "store/store.hpp"

#include <ckpt/address.hpp>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <utility>

namespace ckpt::capi {
namespace {

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

template <std::size_t N>
void copy_text(char (&to)[N], const std::string& text) {
  std::snprintf(to, N, "%s", text.c_str());
}

}  // namespace

Deadline deadline_after(double seconds) {
  constexpr double longest = 1e9;
  if (!(seconds >= 0) || seconds > longest) return std::nullopt;
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Keeps the last warning for whoever asks, and passes on that bytes move.
class Save::Log final : public Monitor {
 public:
  explicit Log(Save& save) : save_(save) {}
  void progress(const Progress& /*progress*/) override { save_.saver_->has_progress(); }
  void warning(std::string_view message) override {
    const std::lock_guard lock(save_.mutex_);
    save_.warning_ = message;
  }

 private:
  Save& save_;
};

void Save::add_meta(const char* key, const char* value) {
  process_.require();
  const std::lock_guard lock(mutex_);
  if (started_) refuse("the save has been started");
  meta_[key] = value;
}

std::uint64_t Save::add_memory(const capture::MemoryRange& range) {
  process_.require();
  const std::lock_guard lock(mutex_);
  if (started_ || frozen_) refuse("memory is named before it's frozen, and before the save is started");
  const std::size_t number = files_.add_range(range.size);
  ranges_.push_back(range);
  return number;
}

void Save::freeze() {
  process_.require();
  const auto called = Clock::now();
  std::shared_ptr<capture::FrozenMemory> memory;
  {
    const std::lock_guard lock(mutex_);
    if (frozen_) refuse("the save has its moment already");
    memory = saver_->freezer().prepare(std::move(ranges_));
    memory_ = memory;
    frozen_ = true;
  }
  saver_->watch(shared_from_this());
  try {
    memory->freeze([this] { begin(); });
  } catch (const Error& error) {
    Failure failure = current_failure();
    if (error.code() == Errc::busy) failure.status = CKPT_NO_MEMORY;
    finish(CKPT_STATE_FAILED, failure);
    throw;
  }
  const std::lock_guard lock(mutex_);
  freeze_seconds_ = seconds_between(called, Clock::now());
  if (state_ == CKPT_STATE_NEW) state_ = CKPT_STATE_STAGED;
  changed_.notify_all();
}

void Save::begin() {
  {
    const std::lock_guard lock(mutex_);
    begun_ = true;
    moment_ = Clock::now();
  }
  hand_over_if_ready();
}

void Save::start() {
  process_.require();
  {
    const std::lock_guard lock(mutex_);
    if (started_) refuse("the save has been started already");
    started_ = true;
  }
  saver_->watch(shared_from_this());
  hand_over_if_ready();
}

void Save::hand_over_if_ready() {
  {
    const std::lock_guard lock(mutex_);
    if (!begun_ || !started_ || handed_over_ || state_ == CKPT_STATE_FAILED) return;
    handed_over_ = true;
  }
  saver_->enqueue(shared_from_this());
}

void Save::run() {
  SaveOptions options = saver_->options();
  std::vector<source::TreeEntry> entries;
  try {
    {
      const std::lock_guard lock(mutex_);
      if (state_ == CKPT_STATE_FAILED) return;
      state_ = CKPT_STATE_WRITING;
      options.step = step_;
      options.meta = meta_;
      entries = files_.entries(memory_, options.fixed_time.value_or(std::time(nullptr)));
    }
    Log log(*this);
    SaveReport report = ops::save_entries(options, std::move(entries), log);
    {
      const std::lock_guard lock(mutex_);
      report_ = std::move(report);
    }
    switch (report_.state) {
      case SaveState::durable: return finish(CKPT_STATE_DURABLE, {});
      case SaveState::skipped: return finish(CKPT_STATE_SKIPPED, {});
      default: return finish(CKPT_STATE_WRITTEN, {});
    }
  } catch (...) {
    finish(CKPT_STATE_FAILED, current_failure());
  }
}

void Save::finish(ckpt_state state, Failure failure) {
  {
    const std::lock_guard lock(mutex_);
    if (ended()) return;
    state_ = state;
    failure_ = std::move(failure);
    if (state == CKPT_STATE_DURABLE) durable_seconds_ = seconds_between(moment_, Clock::now());
    let_go();
    changed_.notify_all();
  }
  if (state != CKPT_STATE_FAILED) saver_->forget(*this);
}

/// Of a failed save some memory may still be held, which its owner would wait for.
void Save::let_go() {
  files_ = {};
  if (memory_ != nullptr) frozen_timings_ = memory_->timings();
  memory_.reset();
}

bool Save::ended() const {
  return state_ == CKPT_STATE_WRITTEN || state_ == CKPT_STATE_DURABLE || state_ == CKPT_STATE_FAILED ||
         state_ == CKPT_STATE_SKIPPED;
}

/// The other ranks' shards come from elsewhere: the store tells.
void Save::look_for_commit() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != CKPT_STATE_WRITTEN) return;
  }
  const store::Store store = store::Store::open(saver_->options().store);
  const auto committed = store.find(step_);
  if (!committed || committed->manifest.attempt != report_.attempt) return;
  os::sync_directory(committed->directory);
  os::sync_directory(store.path());
  const std::lock_guard lock(mutex_);
  if (state_ != CKPT_STATE_WRITTEN) return;
  state_ = CKPT_STATE_DURABLE;
  report_.id = to_hex(committed->manifest.id);
  durable_seconds_ = seconds_between(moment_, Clock::now());
  changed_.notify_all();
}

ckpt_state Save::state() {
  process_.require();
  look_for_commit();
  const std::lock_guard lock(mutex_);
  return state_;
}

bool Save::is_released() const {
  process_.require();
  const std::lock_guard lock(mutex_);
  if (memory_ != nullptr) return memory_->is_released();
  return ended() || ranges_.empty();
}

Failure Save::wait(const Deadline& deadline, bool until_durable) {
  process_.require();
  constexpr auto pause = std::chrono::milliseconds(20);
  while (true) {
    if (until_durable) look_for_commit();
    std::unique_lock lock(mutex_);
    if (state_ == CKPT_STATE_FAILED) {
      told_ = true;
      const Failure failure = failure_;
      lock.unlock();
      saver_->forget(*this);
      return failure;
    }
    const bool waits_for_others = state_ == CKPT_STATE_WRITTEN && until_durable;
    if (ended() && !waits_for_others) return {};
    const auto now = Clock::now();
    if (deadline && now >= *deadline) {
      return {.status = CKPT_TIMED_OUT,
              .message = "'" + address_of(saver_->options().store, step_) + "' isn't durable yet",
              .hint = {}};
    }
    if (waits_for_others) {
      changed_.wait_until(lock, deadline ? std::min(*deadline, now + pause) : now + pause);
    } else if (deadline) {
      changed_.wait_until(lock, *deadline);
    } else {
      changed_.wait(lock);
    }
  }
}

std::optional<Failure> Save::untold_failure() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != CKPT_STATE_FAILED || told_) return std::nullopt;
    told_ = true;
  }
  saver_->forget(*this);
  return failure_;
}

void Save::abandon() {
  if (!process_.is_here()) return;
  {
    const std::lock_guard lock(mutex_);
    if (started_ || ended()) return;
    state_ = CKPT_STATE_FAILED;
    told_ = true;
    failure_ = {.status = CKPT_INTERRUPTED, .message = "the save was dropped before it was started", .hint = {}};
    let_go();
    changed_.notify_all();
  }
  saver_->forget(*this);
}

void Save::timings(ckpt_timings& timings) const {
  process_.require();
  const std::lock_guard lock(mutex_);
  const capture::FreezeTimings frozen = memory_ != nullptr ? memory_->timings() : frozen_timings_;
  timings.fault_seconds = frozen.fault_seconds;
  timings.wait_seconds = frozen.wait_seconds;
  timings.protected_bytes = frozen.protected_bytes;
  timings.copied_bytes = frozen.copied_bytes;
  timings.aside_bytes = frozen.aside_bytes;
  timings.peak_aside_bytes = frozen.peak_aside_bytes;
  timings.waves = frozen.waves;
  copy_text(timings.why_copied, frozen.why_copied);
  timings.freeze_seconds = freeze_seconds_;
  timings.write_seconds = report_.write_seconds;
  timings.durable_seconds = durable_seconds_;
  timings.raw_bytes = report_.raw_bytes;
  timings.stored_bytes = report_.stored_bytes;
  copy_text(timings.id, report_.id);
  copy_text(timings.warning, warning_);
}

}  // namespace ckpt::capi

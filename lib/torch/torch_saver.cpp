// SPDX-License-Identifier: Apache-2.0
// During save(): what the state holds is listed, its storages named to the library, copies from accelerators begun, and
// all frozen. One thread follows the saves and lets go of tensors.
#include "torch/checked.hpp"
#include "torch/environment.hpp"
#include "torch/save_plan.hpp"
#include "torch/save_progress.hpp"

#include <ckpt/torch_saver.hpp>

#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace ckpt::torch {
namespace {

ckpt_saver* open(const SaverOptions& options, const ckpt_job* job) {
  ckpt_saver_options given;
  ckpt_saver_defaults(&given);
  given.store = options.store.c_str();
  given.rank = options.rank;
  given.world_size = options.world_size;
  given.attempt = options.attempt;
  given.resumed_from = options.resumed_from;
  given.encode = options.encode.c_str();
  given.use_base = options.use_base ? 1 : 0;
  given.check = options.check ? 1 : 0;
  given.capture = options.capture;
  given.memory = options.memory;
  given.local_world_size = options.local_world_size;
  given.jobs = options.jobs;
  given.fixed_time = options.fixed_time;
  given.job = job;
  given.alive_seconds = alive_seconds();
  ckpt_saver* saver = nullptr;
  check(ckpt_saver_open(&given, &saver));
  return saver;
}

std::uint64_t pinned_of(const SaverOptions& options) {
  if (options.pinned != 0) return options.pinned;
  const auto pages = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES)));
  const auto page = static_cast<std::uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
  return pages * page / 4 / std::max(options.local_world_size, 1U);
}

}  // namespace

class Saver::Impl {
 public:
  explicit Impl(const SaverOptions& options)
      : options_(options),
        job_(open_job()),
        saver_(open(options, job_.get())),
        buffers_(std::make_shared<HostBuffers>(pinned_of(options))),
        follower_([this] { follow(); }) {}

  [[nodiscard]] bool is_here() const { return process_ == ::getpid(); }
  void require_here() const {
    if (!is_here()) refuse(CKPT_INVALID, "the saver was made by another process: a fork's child opens its own");
  }

  std::shared_ptr<SaveProgress> save(std::uint64_t step, const State& state) {
    require_here();
    const std::lock_guard saving(saving_);
    require_open();
    tell();
    const SavePlan plan(state, options_);
    ckpt_save* raw = nullptr;
    check(ckpt_save_new(saver_, step, &raw));
    const auto progress = std::make_shared<SaveProgress>(step, raw);
    plan.name_memory(*progress, buffers_, streams_);
    plan.describe(raw);
    // What waits for copies is started by the follower, and so is what comes after it: in order.
    bool can_start = !plan.has_copies();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& other : saves_) can_start = can_start && other->is_started();
      // Before the moment: a state that's copied in waves is written meanwhile.
      if (can_start) (void)progress->advance();
      saves_.push_back(progress);
      changed_.notify_all();
    }
    progress->freeze();
    return progress;
  }

  [[nodiscard]] ckpt_request step(std::uint64_t step, std::string_view status) {
    require_here();
    ckpt_request request = CKPT_REQUEST_NONE;
    check(ckpt_job_step(job_.get(), step, std::string(status).c_str(), &request));
    return request;
  }

  void extend_timeout(double seconds) {
    require_here();
    check(ckpt_job_extend(job_.get(), seconds));
  }

  void before_update(const c10::Stream* stream) {
    require_here();
    for (const auto& save : saves()) save->before_update(stream);
  }

  void wait(const Deadline& deadline) {
    require_here();
    for (const auto& save : saves()) require_over(*save, deadline);
    const std::lock_guard saving(saving_);
    tell();
  }

  [[nodiscard]] std::size_t pending() const {
    const auto all = saves();
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [](const auto& save) { return !save->is_over(); }));
  }

  void close(const Deadline& deadline) {
    require_here();
    const std::lock_guard saving(saving_);
    if (saver_ == nullptr) return;
    for (const auto& save : saves()) require_over(*save, deadline);
    const int status = ckpt_saver_close(saver_, seconds_until(deadline));
    if (status == CKPT_TIMED_OUT) throw last_error(status);
    saver_ = nullptr;
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
      changed_.notify_all();
    }
    follower_.join();
    tell();
  }

 private:
  void require_open() const {
    if (saver_ == nullptr) refuse(CKPT_INVALID, "the saver is closed");
  }

  [[nodiscard]] std::vector<std::shared_ptr<SaveProgress>> saves() const {
    const std::lock_guard lock(mutex_);
    return saves_;
  }

  static void require_over(SaveProgress& save, const Deadline& deadline) {
    if (!save.wait_until_over(deadline))
      refuse(CKPT_TIMED_OUT, "step " + std::to_string(save.step()) + " is still on its way");
  }

  /// Throws the first failure that no one has been told of.
  void tell() {
    for (const auto& save : failed_or_on_their_way()) {
      if (const auto failure = save->untold_failure()) throw Error(*failure);
    }
  }

  /// Forgets those that ended well, but for their tensors.
  std::vector<std::shared_ptr<SaveProgress>> failed_or_on_their_way() {
    const std::lock_guard lock(mutex_);
    std::vector<std::shared_ptr<SaveProgress>> all = ended_;
    all.insert(all.end(), saves_.begin(), saves_.end());
    ended_.clear();
    for (const auto& save : all) {
      if (save->state() == CKPT_STATE_FAILED && std::find(saves_.begin(), saves_.end(), save) == saves_.end())
        ended_.push_back(save);
    }
    return all;
  }

  void follow() {
    constexpr auto pause = std::chrono::milliseconds(2);
    std::unique_lock lock(mutex_);
    while (true) {
      if (saves_.empty()) {
        if (closed_) return;
        changed_.wait(lock);
        continue;
      }
      const std::vector<std::shared_ptr<SaveProgress>> all = saves_;
      lock.unlock();
      std::vector<std::shared_ptr<SaveProgress>> over;
      for (const auto& save : all) {
        if (save->advance() && save->is_over()) over.push_back(save);
        if (!save->is_started()) break;  // in order
      }
      lock.lock();
      for (const auto& save : over) {
        saves_.erase(std::find(saves_.begin(), saves_.end(), save));
        if (save->state() == CKPT_STATE_FAILED) ended_.push_back(save);
      }
      if (over.empty()) changed_.wait_for(lock, pause);
    }
  }

  const SaverOptions options_;
  const pid_t process_ = ::getpid();
  const JobPtr job_;
  ckpt_saver* saver_;
  std::shared_ptr<HostBuffers> buffers_;
  CopyStreams streams_;
  std::mutex saving_;  ///< one save at a time
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<SaveProgress>> saves_;  ///< on their way, or their memory is
  std::vector<std::shared_ptr<SaveProgress>> ended_;  ///< failed
  bool closed_ = false;
  std::thread follower_;
};

SaveHandle::SaveHandle(std::shared_ptr<SaveProgress> progress) : progress_(std::move(progress)) {}
std::uint64_t SaveHandle::step() const { return progress_->step(); }
ckpt_state SaveHandle::state() const { return progress_->state(); }
bool SaveHandle::done() const { return progress_->is_over(); }
void SaveHandle::wait(double timeout) const { progress_->wait(deadline_after(timeout), true); }
ckpt_timings SaveHandle::timings() const { return progress_->timings(); }
void SaveHandle::before_update() const { progress_->before_update(nullptr); }
void SaveHandle::before_update(const c10::Stream& stream) const { progress_->before_update(&stream); }

Saver::Saver(const SaverOptions& options) : impl_(std::make_shared<Impl>(options)) {}

Saver::~Saver() {
  if (!impl_->is_here()) {
    (void)new std::shared_ptr<Impl>(std::move(impl_));  // the parent's: its threads aren't here
    return;
  }
  try {
    impl_->close(std::nullopt);
  } catch (const std::exception&) {
  }
}

SaveHandle Saver::save(std::uint64_t step, const State& state) { return SaveHandle(impl_->save(step, state)); }
ckpt_request Saver::step(std::uint64_t step, std::string_view status) { return impl_->step(step, status); }
void Saver::extend_timeout(double seconds) { impl_->extend_timeout(seconds); }
void Saver::before_update() { impl_->before_update(nullptr); }
void Saver::before_update(const c10::Stream& stream) { impl_->before_update(&stream); }
void Saver::wait(double timeout) { impl_->wait(deadline_after(timeout)); }
std::size_t Saver::pending() const { return impl_->pending(); }
void Saver::close(double timeout) { impl_->close(deadline_after(timeout)); }

}  // namespace ckpt::torch

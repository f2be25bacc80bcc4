// SPDX-License-Identifier: Apache-2.0
// A chore remembers what it has done, so that it's idle where there's nothing new.
#include "server_chores.hpp"

#include <fmt/format.h>
#include <ckpt/compress.hpp>
#include <ckpt/error.hpp>
#include <ckpt/list.hpp>
#include <ckpt/verify.hpp>

#include <chrono>
#include <memory>
#include <vector>

#include "cli/words.hpp"
#include "prune_options.hpp"

namespace ckpt::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Content = std::vector<std::string>;

/// A scrub gives other servers, and what is new, a chance this often.
constexpr double scrub_turn_seconds = 5;
constexpr auto scrub_rest = std::chrono::minutes(1);

Content content_of(const std::string& store) {
  Content ids;
  for (const CheckpointInfo& info : list_checkpoints(store)) ids.push_back(info.id);
  return ids;
}

/// Runs `work` if the store holds other checkpoints than after the last time.
template <class Work>
std::function<void(Monitor&)> when_changed(std::string store, Work work) {
  return [store = std::move(store), work = std::move(work), seen = std::make_shared<Content>()](Monitor& monitor) {
    if (content_of(store) == *seen) return;
    work(monitor);
    *seen = content_of(store);
  };
}

}  // namespace

PruneOptions parse_prune_policy(const std::string& text) {
  PruneOptions options;
  CommandLine line;
  line.section("policy");
  declare_prune_options(line, options);
  const auto operands = line.parse(split_words(text));
  if (!operands.empty())
    throw Error(Errc::invalid_argument, fmt::format("'{}' is no option of ckpt-prune", operands[0]));
  const bool says_something = options.policy.has_keep_rule() || !options.policy.remove.empty();
  if (!says_something) throw Error(Errc::invalid_argument, "the policy says nothing of what stays");
  if (options.dry_run || !options.pin.empty() || !options.unpin.empty())
    throw Error(Errc::invalid_argument, "a policy can't pin, unpin or be dry");
  return options;
}

Chore prune_chore(PruneOptions options) {
  const std::string store = options.store;
  return {.name = "prune", .run = when_changed(store, [options = std::move(options)](Monitor& monitor) {
                             const PruneReport report = prune(options, monitor);
                             if (!report.failures.empty()) throw Error(Errc::io, report.failures.front().message);
                           })};
}

Chore scrub_chore(const std::string& store, std::uint64_t bytes_per_second, unsigned jobs) {
  VerifyOptions options{.what = {.store = store, .selector = {}}, .bytes_per_second = bytes_per_second, .jobs = jobs};
  options.budget_seconds = scrub_turn_seconds;
  return {.name = "scrub", .run = [options, next = std::make_shared<Clock::time_point>()](Monitor& monitor) {
            if (Clock::now() < *next) return;
            const VerifyReport report = verify(options, monitor);
            if (report.complete) *next = Clock::now() + scrub_rest;
            if (!report.damages.empty()) {
              const Damage& damage = report.damages.front();
              throw Error(Errc::damaged,
                          fmt::format("'{}' is damaged: {}: {}", damage.checkpoint, damage.shard, damage.detail));
            }
            if (!report.failures.empty()) throw Error(Errc::io, report.failures.front());
          }};
}

Chore compress_chore(const std::string& store, unsigned jobs) {
  CompressOptions options{.store = store, .newest_full = true, .jobs = jobs};
  return {.name = "compress", .run = when_changed(store, [options](Monitor& monitor) {
                                for (const CompressedCheckpoint& done : compress(options, monitor).checkpoints) {
                                  if (done.action == CompressAction::failed && !done.temporary)
                                    throw Error(Errc::io, fmt::format("step {}: {}", done.step, done.reason));
                                }
                              })};
}

}  // namespace ckpt::cli

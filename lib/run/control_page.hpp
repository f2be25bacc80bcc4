// SPDX-License-Identifier: Apache-2.0
// A page of memory that the supervisor of a node shares with its ranks. Through it all ranks are asked for the same
// thing at the same step (save now; save now and end), although they run apart and no one waits for another.
//
// A rank says which step it has finished, then looks whether something is asked for from that step on. The supervisor
// first proposes a step that no rank has finished yet, then looks again: only if that still holds is it agreed, else a
// later one is proposed. As each side writes before it looks, no rank can have gone past a step that is agreed. A rank
// that comes to a step that is proposed waits until that is settled, microseconds as a rule.
//
// Each word has one writer. Steps are kept plus one, so that zero means none. The supervisor believes nothing that is
// written there but what ranks say of themselves, and of that nothing that can't be.
#pragma once

#include "os/fd.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::run {

/// What ranks are asked for.
enum class Request : std::uint64_t {
  none = 0,
  save = 1,  ///< save this step
  stop = 2,  ///< save this step and end
};

struct ControlWords;
struct RankWords;

/// Shared memory, mapped. Movable, not copyable.
class ControlMapping {
 public:
  ControlMapping(const os::Fd& file, std::size_t size, const std::string& name);
  ControlMapping(ControlMapping&& other) noexcept;
  ControlMapping& operator=(ControlMapping&& other) = delete;
  ~ControlMapping();

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] ControlWords& words() const;
  [[nodiscard]] RankWords& rank(std::uint32_t local_rank) const;

 private:
  void* data_;
  std::size_t size_;
};

/// The supervisor's side. Not thread-safe.
class ControlPage {
 public:
  explicit ControlPage(std::uint32_t ranks);

  /// How a rank opens it, as long as this process lives and holds it.
  [[nodiscard]] std::string path() const;

  [[nodiscard]] bool has_joined(std::uint32_t local_rank) const;
  [[nodiscard]] bool has_any_joined() const;
  /// The last step that a rank has finished.
  [[nodiscard]] std::optional<std::uint64_t> last_step(std::uint32_t local_rank) const;
  /// The smallest step that no rank here has finished.
  [[nodiscard]] std::uint64_t next_step() const;

  /// Asks for `request` at the first step from `step` on, without its being settled. False: a rank has finished that
  /// step, so a later one has to be proposed. One request at a time: what was asked for before, and not answered, is
  /// withdrawn.
  [[nodiscard]] bool propose(Request request, std::uint64_t step);
  /// Settles what was proposed.
  void agree();
  /// True if nothing is asked for, or all ranks know that have joined, live and take part in the steps.
  [[nodiscard]] bool is_answered();
  /// It has ended, and answers nothing any more.
  void set_left(std::uint32_t local_rank) { has_left_[local_rank] = true; }

 private:
  /// What a rank had finished when it was looked at, and how far the others were when that was new.
  struct Seen {
    std::uint64_t finished = 0;
    std::uint64_t next = 0;
  };

  [[nodiscard]] std::uint64_t finished(std::uint32_t local_rank) const;
  [[nodiscard]] bool is_awaited(std::uint32_t local_rank);

  std::uint32_t ranks_;
  os::Fd file_;
  ControlMapping mapping_;
  std::uint64_t proposed_ = 0;  ///< as in the page, where anyone may write
  bool is_agreed_ = false;
  std::vector<Seen> seen_;
  std::vector<bool> has_left_;
};

/// A rank's side. Not thread-safe.
class RankPage {
 public:
  /// Throws Errc::malformed where the file is something else, invalid_argument where there's no such rank, io.
  RankPage(const std::string& path, std::uint32_t local_rank);

  /// This rank has finished `step`; what is asked of it there. Each request is told once.
  [[nodiscard]] Request finish(std::uint64_t step);

 private:
  ControlMapping mapping_;
  RankWords* own_;
};

}  // namespace ckpt::run

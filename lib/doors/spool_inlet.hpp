// SPDX-License-Identifier: Apache-2.0
// The server's end of the spool. Who has it, has the spool's lock, so there's one at a time.
#pragma once

#include "doors/door.hpp"
#include "doors/spool.hpp"
#include "os/file_lock.hpp"

#include <chrono>
#include <map>

namespace ckpt::doors {

class SpoolInlet final : public Inlet {
 public:
  /// Nothing if another drains this spool. `store` is where its saves go.
  [[nodiscard]] static std::unique_ptr<SpoolInlet> open(Spool spool, const std::string& store, Monitor& monitor);

  [[nodiscard]] std::unique_ptr<Claim> claim(Monitor& monitor) override;
  [[nodiscard]] Backlog backlog() override;
  [[nodiscard]] std::string name() const override { return spool_.path(); }

  /// True if nothing is left that this could ever take.
  [[nodiscard]] bool is_drained() const;

 private:
  using Clock = std::chrono::steady_clock;

  struct Pause {
    Clock::time_point until;
    std::chrono::milliseconds length;
  };

  SpoolInlet(Spool spool, std::string store, os::Fd lock)
      : spool_(std::move(spool)), store_(std::move(store)), lock_(std::move(lock)) {}
  [[nodiscard]] bool is_pausing(const Entry& entry) const;
  void pause(const Entry& entry);
  void keep_if_broken(const Entry& entry, Monitor& monitor) const;
  void keep(const Entry& entry, const std::string& why, Monitor& monitor) const;
  friend class SpoolClaim;

  Spool spool_;
  std::string store_;
  os::Fd lock_;
  std::map<std::string, Pause> pauses_;  ///< by entry: what failed for a reason that may pass is left alone for a while
};

}  // namespace ckpt::doors

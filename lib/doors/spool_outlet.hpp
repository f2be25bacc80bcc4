// SPDX-License-Identifier: Apache-2.0
// The producer's end of the spool: publishes an intent, then moves or copies the input, then says that it's staged.
#pragma once

#include "doors/door.hpp"
#include "doors/spool.hpp"

namespace ckpt::doors {

class SpoolOutlet final : public Outlet {
 public:
  /// `store` is the path of a store that exists.
  SpoolOutlet(Spool spool, std::string store) : spool_(std::move(spool)), store_(std::move(store)) {}

  [[nodiscard]] Receipt hand_over(const Parcel& parcel, Monitor& monitor) override;

 private:
  Spool spool_;
  std::string store_;
};

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
// The caller's observer of a sync, for the threads that send to several destinations.
#pragma once

#include "ops/locked_observer.hpp"

#include <ckpt/sync.hpp>

namespace ckpt::ops {

class SharedSyncObserver final : public LockedObserver<SyncObserver> {
 public:
  using LockedObserver::LockedObserver;
  void item(const SyncItem& item) override {
    locked([&] { observer().item(item); });
  }
};

}  // namespace ckpt::ops

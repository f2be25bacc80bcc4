// SPDX-License-Identifier: Apache-2.0
// A checkpoint that's open for reading through the C interface.
#pragma once

#include "capi/status.hpp"
#include "ops/global_tensors.hpp"
#include "store/pins.hpp"
#include "store/store.hpp"

#include <ckpt/ckpt.h>
#include <ckpt/monitor.hpp>

#include <memory>
#include <optional>
#include <string>

struct ckpt_load {
  ckpt::capi::OwnProcess process;
  ckpt::store::Checkpoint checkpoint;
  std::optional<ckpt::store::Pin> pin;  ///< where the store can be written to
  std::string id;
  std::unique_ptr<ckpt::ops::GlobalTensors> tensors;
  ckpt::Monitor monitor;
};

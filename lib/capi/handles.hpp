// SPDX-License-Identifier: Apache-2.0
// What the pointers of the C interface point to.
#pragma once

#include "capi/save.hpp"
#include "capi/saver.hpp"
#include "capi/status.hpp"
#include "run/rank_link.hpp"

#include <memory>

struct ckpt_saver {
  std::shared_ptr<ckpt::capi::Saver> saver;
  ckpt::capi::OwnProcess process;
};

struct ckpt_job {
  std::shared_ptr<ckpt::run::RankLink> link;  ///< shared with the savers that tell of their progress through it
  ckpt::capi::OwnProcess process;
};

struct ckpt_save {
  std::shared_ptr<ckpt::capi::Save> save;
};

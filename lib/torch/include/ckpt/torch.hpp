// SPDX-License-Identifier: Apache-2.0
/// All of libckpt-torch: checkpoints of trainers that are written in C++ over LibTorch, from 1.13 on. ckpt-torch(3) has
/// a whole training.
#pragma once

#include <ckpt/torch_error.hpp>   // IWYU pragma: export
#include <ckpt/torch_job.hpp>     // IWYU pragma: export
#include <ckpt/torch_loader.hpp>  // IWYU pragma: export
#include <ckpt/torch_saver.hpp>   // IWYU pragma: export
#include <ckpt/torch_state.hpp>   // IWYU pragma: export

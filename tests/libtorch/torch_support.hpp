// SPDX-License-Identifier: Apache-2.0
// What tests over LibTorch share. It's included last: LibTorch may define CHECK, too.
#pragma once

#include "scratch.hpp"

#include <ckpt/torch.hpp>

#include <ATen/ATen.h>

#include <cstring>
#include <string>

#undef CHECK
#undef CHECK_EQ
#undef CHECK_NE
#undef CHECK_LE
#undef CHECK_LT
#undef CHECK_GE
#undef CHECK_GT
#include <doctest/doctest.h>

namespace torch_test {

using ckpt::torch::Error;
using ckpt::torch::Loader;
using ckpt::torch::SaveHandle;
using ckpt::torch::Saver;
using ckpt::torch::SaverOptions;
using ckpt::torch::State;

[[nodiscard]] inline SaverOptions options_for(const std::string& store) {
  SaverOptions options;
  options.store = store;
  options.jobs = 2;
  return options;
}

inline void save_one(const std::string& store, std::uint64_t step, const State& state) {
  Saver saver(options_for(store));
  saver.save(step, state).wait();
  saver.close();
}

/// The same type, shape and bytes.
[[nodiscard]] inline bool same(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  const at::Tensor x = a.detach().cpu().contiguous();
  const at::Tensor y = b.detach().cpu().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

/// What a call says that's refused; an empty message if it isn't.
template <class Call>
[[nodiscard]] Error failure_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return {CKPT_OK, ""};
}

[[nodiscard]] inline bool mentions(const Error& error, const std::string& text) {
  return std::string(error.what()).find(text) != std::string::npos;
}

}  // namespace torch_test

// SPDX-License-Identifier: Apache-2.0
// What the command line says. All ranks are given the same.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace trainer {

struct Options {
  std::string text = "/usr/share/common-licenses";  ///< a file, or a directory whose files are read in order
  std::int64_t steps = 200;
  std::int64_t layers = 4;
  std::int64_t width = 128;
  std::int64_t heads = 4;
  std::int64_t context = 64;    ///< bytes that the model sees
  std::int64_t batch = 8;       ///< samples a step, of all ranks together
  std::int64_t save_every = 0;  ///< steps; 0: only when asked, and in the end
  std::int64_t seed = 1;
  std::int64_t tp = 1;      ///< ranks that share each layer
  std::int64_t pp = 1;      ///< ranks that share the layers out
  std::int64_t nan_at = 0;  ///< a step whose loss is to be none, for tests
  double lr = 1e-3;
  bool digest = false;  ///< every rank prints it
};

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Nothing: help was asked for, and printed. Throws UsageError.
[[nodiscard]] std::optional<Options> parse_options(int count, char** words);

}  // namespace trainer

// SPDX-License-Identifier: Apache-2.0
// Fuzzes the npy header.
#include "parse_fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::parse_as("input.npy", fuzz::text_of(data, size));
  return 0;
}

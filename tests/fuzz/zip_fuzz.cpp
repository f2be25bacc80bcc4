// SPDX-License-Identifier: Apache-2.0
// Fuzzes the zip directory and what is behind it: torch archives and npz.
#include "parse_fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::parse_as("input.pt", fuzz::text_of(data, size));
  return 0;
}

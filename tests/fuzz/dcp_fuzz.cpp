// SPDX-License-Identifier: Apache-2.0
// Fuzzes a .distcp file together with its .metadata: the first two bytes say how long the .metadata is that follows;
// the rest is the .distcp. A length of zero leaves the .metadata out.
#include "parse_fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::size_t length = std::min<std::size_t>(data[0] + 256U * data[1], size - 2);
  source_test::MemorySiblings siblings;
  if (length > 0) siblings.files["x/.metadata"] = fuzz::text_of(data + 2, length);
  fuzz::parse_as("x/.metadata", fuzz::text_of(data + 2, length));
  fuzz::parse_as("x/__0_0.distcp", fuzz::text_of(data + 2 + length, size - 2 - length), siblings);
  return 0;
}

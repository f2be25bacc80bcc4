// SPDX-License-Identifier: Apache-2.0
// What all parser targets share: one input in memory goes through parse() under a name of the target's kind, and
// the result must keep what parse.hpp promises, or the target aborts.
#pragma once

#include "source_support.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

namespace fuzz {

inline void parse_as(const char* path, std::string bytes, const source_test::MemorySiblings& siblings = {}) {
  const std::uint64_t size = bytes.size();
  const ckpt::source::Parsed parsed = source_test::parse_bytes(path, std::move(bytes), siblings);
  const std::string broken = source_test::broken_promise(parsed, size);
  if (broken.empty()) return;
  std::fprintf(stderr, "%s: %s\n", path, broken.c_str());
  std::abort();
}

inline std::string text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace fuzz

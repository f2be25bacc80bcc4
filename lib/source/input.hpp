// SPDX-License-Identifier: Apache-2.0
// Random access to the bytes of one input file, and to the files that are saved with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace ckpt::source {

/// Thread-safe: read() may be called from several threads.
class Input {
 public:
  virtual ~Input() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// Fills `into` from `offset`. The range must lie within size(). Throws Errc::io, or Errc::busy if the file
  /// has become shorter.
  virtual void read(std::uint64_t offset, std::span<std::byte> into) const = 0;
};

/// The other files of the same save: a DCP shard needs its .metadata.
class Siblings {
 public:
  virtual ~Siblings() = default;
  /// The file at `path` (as named in the checkpoint), or null if it isn't part of the save.
  [[nodiscard]] virtual std::unique_ptr<Input> open(std::string_view path) const = 0;
};

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// Random access to the bytes of one input file, and to the files that are saved with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace ckpt::source {

struct Parsed;

/// Thread-safe: read() may be called from several threads.
class Input {
 public:
  virtual ~Input() = default;
  [[nodiscard]] virtual std::uint64_t size() const = 0;
  /// Fills `into` from `offset`. The range must lie within size(). Throws Errc::io, or Errc::busy if the file
  /// has become shorter.
  virtual void read(std::uint64_t offset, std::span<std::byte> into) const = 0;
};

/// Bytes in memory that their maker can let go of as they're stored.
class HeldInput : public Input {
 public:
  /// As read(), of bytes that no one will ask for again. Each is taken once.
  virtual void take(std::uint64_t offset, std::span<std::byte> into) const = 0;
  /// As read(), or false: some of it has been taken.
  [[nodiscard]] virtual bool read_if_held(std::uint64_t offset, std::span<std::byte> into) const = 0;
  /// The save has failed: whoever waits in take() for what others take gets Errc::interrupted.
  virtual void give_up() const = 0;
  /// Adds what the maker knows beyond what the bytes say: the place of a part in its whole.
  virtual void complete(Parsed& parsed) const = 0;
};

/// The other files of the same save: a DCP shard needs its .metadata.
class Siblings {
 public:
  virtual ~Siblings() = default;
  /// The file at `path` (as named in the checkpoint), or null if it isn't part of the save.
  [[nodiscard]] virtual std::shared_ptr<const Input> open(std::string_view path) const = 0;
};

}  // namespace ckpt::source

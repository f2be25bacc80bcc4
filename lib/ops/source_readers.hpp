// SPDX-License-Identifier: Apache-2.0
// The input files of a save while they're read: each is open only as long as it's needed, and each must still be, at
// the end, what it was when it was found.
#pragma once

#include "os/adaptive_reader.hpp"
#include "source/input.hpp"
#include "source/source_tree.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace ckpt::ops {

/// Opens one input file. Throws Errc::busy if it's no longer the file that was found, or is open for writing.
[[nodiscard]] std::shared_ptr<const os::AdaptiveReader> open_source(const source::TreeEntry& entry);

/// Reads exactly [offset, offset + size), or throws Errc::busy: the file has become shorter.
[[nodiscard]] std::span<const std::byte> read_source(const os::AdaptiveReader& reader, std::uint64_t offset,
                                                     std::uint64_t size, os::AlignedBuffer& buffer);

/// What is done with bytes that are read: those in memory are let go of once they're taken.
enum class Reading { look, take };

/// Lends readers to workers. Thread-safe.
class SourceReaders {
 public:
  /// `uses[i]` is how often entries[i] will be borrowed in all; with the last return it's checked and closed.
  SourceReaders(const std::vector<source::TreeEntry>& entries, std::vector<std::size_t> uses);

  /// One of the uses: exactly [offset, offset + size) of an entry. Throws Errc::busy if the input changed meanwhile.
  [[nodiscard]] std::span<const std::byte> read(std::size_t entry, std::uint64_t offset, std::uint64_t size,
                                                Reading reading, os::AlignedBuffer& buffer);

 private:
  [[nodiscard]] std::shared_ptr<const os::AdaptiveReader> borrow(std::size_t entry);
  void give_back(std::size_t entry);

  struct Slot {
    std::shared_ptr<const os::AdaptiveReader> reader;
    std::size_t uses_left = 0;
  };
  const std::vector<source::TreeEntry>& entries_;
  std::mutex mutex_;
  std::vector<Slot> slots_;
};

/// One input for the parsers.
[[nodiscard]] std::shared_ptr<const source::Input> input_of(const source::TreeEntry& entry);

/// One input file for the parsers.
class SourceInput final : public source::Input {
 public:
  explicit SourceInput(const source::TreeEntry& entry);
  [[nodiscard]] std::uint64_t size() const override;
  void read(std::uint64_t offset, std::span<std::byte> into) const override;

 private:
  std::shared_ptr<const os::AdaptiveReader> reader_;
};

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
// A state as pieces of equal size: the bytes of its files one after the other, read where they are. What is read at
// different times must be of one and the same state.
#pragma once

#include "core/digest.hpp"
#include "os/adaptive_reader.hpp"
#include "os/aligned_buffer.hpp"
#include "source/source_tree.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace ckpt::doors {

/// Thread-safe. Borrows the entries.
class PieceReader {
 public:
  PieceReader(const std::vector<source::TreeEntry>& entries, std::uint64_t piece_size);

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] std::uint64_t count() const { return count_; }

  /// A piece's bytes, as a view into `buffer`. Throws busy if a file is open for writing elsewhere or has changed since
  /// it was found; io.
  [[nodiscard]] std::span<const std::byte> read(std::uint64_t number, os::AlignedBuffer& buffer);

 private:
  struct File {
    const source::TreeEntry* entry = nullptr;
    std::uint64_t begin = 0;  ///< of its bytes in the state
    std::shared_ptr<const os::AdaptiveReader> reader;
  };

  [[nodiscard]] std::shared_ptr<const os::AdaptiveReader> open(File& file);
  void close(File& file);

  std::vector<File> files_;  ///< those with bytes
  std::uint64_t piece_size_;
  std::uint64_t bytes_ = 0;
  std::uint64_t count_ = 0;
  std::mutex mutex_;
};

/// The digests of a state's pieces, as they become known. A piece that is read again must be what it was.
class PieceDigests {
 public:
  PieceDigests(std::string shard, std::uint64_t count) : shard_(std::move(shard)), digests_(count), known_(count) {}

  /// Throws busy if the piece isn't what it was.
  Digest note(std::uint64_t number, std::span<const std::byte> bytes);
  /// XXH3-128 over all of them, in order.
  [[nodiscard]] Digest total() const;

 private:
  std::string shard_;
  std::vector<Digest> digests_;
  std::vector<std::uint8_t> known_;  ///< not bits: threads write different ones at once
};

}  // namespace ckpt::doors

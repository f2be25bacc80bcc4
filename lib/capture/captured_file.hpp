// SPDX-License-Identifier: Apache-2.0
// A file that is nowhere yet: bytes that are known, and between them frozen memory, with the checksums that an archive
// wants of it. The memory is let go of as it's stored.
#pragma once

#include "capture/frozen_memory.hpp"
#include "core/bytes.hpp"
#include "core/tensor.hpp"
#include "source/input.hpp"
#include "source/torch_archive_layout.hpp"

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace ckpt::capture {

/// The front of a frozen range.
struct FileContent {
  std::size_t range = 0;
  std::uint64_t size = 0;
};

/// Where a tensor lies in its whole.
struct Placement {
  std::vector<std::int64_t> global_shape;
  std::vector<std::int64_t> global_offsets;
};

/// Thread-safe. Checksums in its literals are right once the contents before them have been taken: take() waits for
/// that, so contents are taken in order or by several threads, of which each takes the next; read() gives zeros.
class CapturedFile final : public source::HeldInput {
 public:
  using Placements = std::unordered_map<std::string, Placement>;  ///< by the tensors' names

  /// The segments name `contents` by their number, each once. No two contents are of one range.
  CapturedFile(std::vector<source::ArchiveSegment> segments, std::vector<FileContent> contents,
               std::shared_ptr<FrozenMemory> memory, Placements placements);

  [[nodiscard]] std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> into) const override;
  void take(std::uint64_t offset, std::span<std::byte> into) const override;
  [[nodiscard]] bool read_if_held(std::uint64_t offset, std::span<std::byte> into) const override;
  void give_up() const override;
  void complete(source::Parsed& parsed) const override;

 private:
  struct Part {
    std::uint64_t size = 0;
    std::uint32_t checksum = 0;
  };
  struct Content {
    FileContent what;
    mutable std::shared_mutex mutex;
    std::map<std::uint64_t, Part> taken;  ///< by where they begin
    std::uint64_t taken_bytes = 0;
  };
  /// A literal, or a content.
  struct Piece {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    std::size_t segment = 0;
    bool is_content = false;
  };
  template <class Visit>
  void for_each_piece(std::uint64_t offset, std::span<std::byte> into, Visit visit) const;
  [[nodiscard]] Content& content_of(const Piece& piece) const;
  void copy_literal(const Piece& piece, std::uint64_t at, std::span<std::byte> into, bool with_checksums) const;
  void take_content(Content& content, std::uint64_t at, std::span<std::byte> into) const;
  [[nodiscard]] std::uint32_t checksum_of(Content& content) const;

  std::vector<source::ArchiveSegment> segments_;
  std::vector<std::unique_ptr<Content>> contents_;
  std::vector<Piece> pieces_;
  std::uint64_t size_ = 0;
  std::shared_ptr<FrozenMemory> memory_;
  Placements placements_;
  mutable std::mutex mutex_;
  mutable std::condition_variable complete_;  ///< a content, or the save has failed
  mutable bool given_up_ = false;
};

}  // namespace ckpt::capture

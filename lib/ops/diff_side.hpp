// SPDX-License-Identifier: Apache-2.0
// One side of a comparison: a stored checkpoint, or plain files, as a list of files with their tensors, and the way to
// the bytes. What is large (indexes, open files) is held for the files at hand only.
#pragma once

#include "core/tensor.hpp"
#include "format/catalog.hpp"
#include "ops/random_bytes.hpp"
#include "source/input.hpp"

#include <ckpt/monitor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::ops {

struct SideFile {
  std::string path;
  std::uint32_t rank = 0;
  format::EntryType type = format::EntryType::file;
  FileKind kind = FileKind::opaque;
  std::uint64_t size = 0;
  std::string target;  ///< of a link
  std::vector<Extent> extents;
  std::vector<Tensor> tensors;
};

/// Thread-safe once it's made.
class DiffSide {
 public:
  virtual ~DiffSide() = default;

  [[nodiscard]] const std::vector<SideFile>& files() const { return files_; }
  /// The address or path that was taken.
  [[nodiscard]] const std::string& name() const { return name_; }

  /// The bytes of a file; `blocks` is how many of them are kept.
  [[nodiscard]] virtual std::unique_ptr<RandomBytes> open(std::size_t file, std::size_t blocks) const = 0;
  /// Where the blocks of a file are; null if it isn't in a store.
  [[nodiscard]] virtual std::shared_ptr<const StoredFile> stored(std::size_t file) const = 0;
  /// Throws Errc::busy if a file is no longer what it was when it was found.
  virtual void require_unchanged() const = 0;

 protected:
  std::vector<SideFile> files_;  ///< without directories
  std::string name_;
};

/// `text` is STORE[@STEP], a file or a directory. What can be a store with a step is one; a directory with a store's
/// description is a store; anything else is a path. Throws not_found, malformed, damaged, busy, io.
[[nodiscard]] std::unique_ptr<const DiffSide> open_side(const std::string& text, unsigned jobs, Monitor& monitor);

/// A file of a side for the parsers. Thread-safe; `side` outlives it.
[[nodiscard]] std::unique_ptr<source::Input> input_of(const DiffSide& side, std::size_t file);

/// The files that lie beside one of a side's, of the same rank. `side` outlives it.
class SideSiblings final : public source::Siblings {
 public:
  SideSiblings(const DiffSide& side, std::uint32_t rank) : side_(side), rank_(rank) {}
  [[nodiscard]] std::shared_ptr<const source::Input> open(std::string_view path) const override;

 private:
  const DiffSide& side_;
  std::uint32_t rank_;
};

}  // namespace ckpt::ops

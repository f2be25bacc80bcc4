// SPDX-License-Identifier: Apache-2.0
// manifest.json: what makes a directory of containers a checkpoint. ckpt-store.json: what makes a directory a store.
#pragma once

#include "core/digest.hpp"
#include "format/base.hpp"
#include "format/ends.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::format {

struct ManifestShard {
  std::uint32_t rank = 0;
  std::string file;  ///< in the checkpoint's directory; a plain name
  std::uint64_t size = 0;
  Digest root;
  Digest digest;  ///< of the container
  std::uint64_t files = 0;
  std::uint64_t tensors = 0;
  std::uint64_t raw_bytes = 0;
};

struct Manifest {
  Digest id;
  std::uint64_t step = 0;
  std::uint64_t attempt = 0;
  std::uint32_t world_size = 1;
  std::vector<ManifestShard> shards;  ///< by rank, all of them
  std::optional<std::int64_t> created;
  std::map<std::string, std::string> meta;
  std::map<std::string, std::string> marks;  ///< suspect, lossy, poisoned: reason; derived_from: id
  std::map<std::string, double> timings;     ///< seconds
  std::vector<BaseCheckpoint> bases;         ///< other checkpoints that blocks of this one are decoded against
  /// Why this program mustn't write it anew, which would lose what it doesn't know; empty if it may.
  std::string read_only;

  /// As others name it that depend on it.
  [[nodiscard]] BaseCheckpoint identity() const { return {.id = id, .step = step}; }
  [[nodiscard]] std::uint64_t stored_bytes() const;
  [[nodiscard]] std::uint64_t raw_bytes() const;
  /// Never `latest`: it's marked suspect, lossy or poisoned.
  [[nodiscard]] bool is_marked() const;
  /// The first of these marks; empty if there is none.
  [[nodiscard]] std::string why_never_latest() const;
};

[[nodiscard]] std::string encode_manifest(const Manifest& manifest);
/// Checks the seal, the version, names of shards, that each rank is there once, and that the id follows from the
/// roots. Throws Damaged, unsupported.
[[nodiscard]] Manifest decode_manifest(std::string_view text, const std::string& name);

[[nodiscard]] std::string encode_store_description();
/// Throws Damaged, unsupported; with `for_writing` also for ro_compat flags that aren't known.
void check_store_description(std::string_view text, const std::string& name, bool for_writing);

}  // namespace ckpt::format

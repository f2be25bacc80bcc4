// SPDX-License-Identifier: Apache-2.0
// Stores with shards of one small file each, for the tests of the store layer.
#pragma once

#include "format/container_reader.hpp"
#include "format_support.hpp"
#include "os/small_file.hpp"
#include "os/temporary_file.hpp"
#include "scratch.hpp"
#include "store/pending_set.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace store_test {

using Names = std::vector<std::string>;

inline ckpt::store::Store new_store(const unit_test::Scratch& scratch) {
  return ckpt::store::Store::open_for_writing(scratch / "store", true);
}

inline Names names_in(const std::string& directory) {
  return ckpt::os::list_directory(directory).value_or(Names{"(no such directory)"});
}

/// A shard whose one file "f" holds `content`.
inline ckpt::store::Published publish(const ckpt::store::Store& store, const ckpt::store::SetKey& set,
                                      std::uint32_t rank, const std::string& content, bool replace = false,
                                      std::map<std::string, std::string> marks = {}) {
  const ckpt::ByteView bytes = ckpt::as_bytes(content);
  const auto sample = format_test::sample_of({{.path = "f", .bytes = {bytes.begin(), bytes.end()}}},
                                             {.step = set.step,
                                              .attempt = set.attempt,
                                              .rank = rank,
                                              .world_size = set.world_size,
                                              .meta = {{"rank", std::to_string(rank)}},
                                              .created = 1000 + rank,
                                              .marks = std::move(marks)});
  const ckpt::os::TemporaryFile temporary(store.scratch(), 0444);
  ckpt::format::ContainerWriter writer(temporary.share(), temporary.path(), sample.catalog, 0);
  for (const ckpt::Bytes& block : sample.blocks) {
    writer.add({.stored = block, .hash = ckpt::xxh3_128(ckpt::ByteView(block))});
  }
  const auto finished = writer.finish();
  return ckpt::store::publish_shard(
      store, {.set = set, .rank = rank, .root = finished.root, .temporary = temporary.path(), .replace = replace});
}

/// A committed checkpoint with a shard for each content.
inline ckpt::store::Checkpoint save(const ckpt::store::Store& store, const ckpt::store::SetKey& set,
                                    const std::vector<std::string>& contents) {
  for (std::uint32_t rank = 0; rank < contents.size(); ++rank) publish(store, set, rank, contents[rank]);
  auto committed = ckpt::store::commit_if_complete(store, {.set = set, .timings = {}});
  if (!committed) throw std::runtime_error("the set isn't complete");
  return *committed;
}

/// What the file "f" of a committed shard holds.
inline std::string content_of(const ckpt::store::Store& store, std::uint64_t step, std::uint32_t rank) {
  const auto checkpoint = store.find(step);
  if (!checkpoint) return "(no checkpoint)";
  const ckpt::format::ContainerReader reader(checkpoint->shard_path(checkpoint->manifest.shards.at(rank)));
  ckpt::format::BlockDecoder decoder;
  return std::string(ckpt::as_text(decoder.read(reader, 0)));
}

/// The code of the Error that `act` throws; Errc::interrupted, which nothing here throws, if it throws none.
inline ckpt::Errc code_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const ckpt::Error& error) {
    return error.code();
  }
  return ckpt::Errc::interrupted;
}

}  // namespace store_test

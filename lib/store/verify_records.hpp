// SPDX-License-Identifier: Apache-2.0
// What verify found, kept where the next reader sees it. A record belongs to one content (step and id); its file's name
// says the verdict, so that a listing of the directory is enough to know which checkpoints are good.
#pragma once

#include "core/digest.hpp"
#include "store/store.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ckpt::store {

enum class Verdict { good, damaged };

struct VerifyRecord {
  std::uint64_t step = 0;
  Digest id;
  Verdict verdict = Verdict::good;
  std::string level;               ///< "quick", "stored", "deep"
  std::int64_t when = 0;           ///< seconds since the epoch
  std::vector<std::string> found;  ///< a line for each damage
};

/// Writes a record in the place of any older one of the same content. A store that can't be written to keeps none:
/// then false is the answer.
bool write_record(const Store& store, const VerifyRecord& record);

/// Removes what is recorded of one content.
void remove_records(const Store& store, std::uint64_t step, const Digest& id);

/// Verdicts of a store's records, by step and the id's first eight hex digits.
using Verdicts = std::map<std::pair<std::uint64_t, std::string>, Verdict>;
[[nodiscard]] Verdicts read_verdicts(const Store& store);
[[nodiscard]] std::optional<Verdict> verdict_of(const Verdicts& verdicts, std::uint64_t step, const Digest& id);

/// True if the last verdict on this content is "damaged", and came from decoding it: a look at the stored bytes alone
/// doesn't overrule that.
[[nodiscard]] bool is_damaged_deeply(const Store& store, const format::Manifest& manifest);

/// Where a verify with a budget goes on: the first byte of a shard that hasn't been checked.
struct VerifyCursor {
  std::uint64_t step = 0;
  Digest id;
  std::uint32_t rank = 0;
  std::uint64_t position = 0;
  bool damaged = false;  ///< what was checked of this checkpoint so far has damage
};
/// What is kept between runs: in the store the cursor alone, since records have files of their own; beside a store that
/// can't be written to, both.
struct VerifyState {
  std::optional<VerifyCursor> cursor;
  std::vector<VerifyRecord> records;  ///< one a checkpoint
};
/// Empty if there's no such file, or it can't be believed.
[[nodiscard]] VerifyState read_state(const std::string& path);
/// Throws Errc::exists if another file would be overwritten.
void require_state_file(const std::string& path);
void write_state(const std::string& path, const VerifyState& state);
[[nodiscard]] std::string state_path(const Store& store);

}  // namespace ckpt::store

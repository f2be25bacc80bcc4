// SPDX-License-Identifier: Apache-2.0
#include "ops/diff_values.hpp"

#include "core/digest.hpp"
#include "ops/json_view.hpp"
#include "ops/pickle_view.hpp"
#include "source/pickle_reader.hpp"
#include "source/plain_data.hpp"
#include "source/safetensors.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace ckpt::ops {
namespace {

/// Values of one pair of files that are listed.
constexpr std::size_t most_values = 10'000;
/// Larger JSON is compared as bytes: as a tree it takes a multiple of its size.
constexpr std::uint64_t most_json = 64U << 20U;

bool is_torch(FileKind kind) { return kind == FileKind::torch_zip || kind == FileKind::torch_legacy; }

bool is_json(const SideFile& file) {
  return file.kind == FileKind::opaque && file.path.ends_with(".json") && file.size <= most_json;
}

class FileComparison {
 public:
  FileComparison(const DiffSide& a, std::size_t file_a, const DiffSide& b, std::size_t file_b)
      : a_(a.files()[file_a]),
        b_(b.files()[file_b]),
        input_a_(input_of(a, file_a)),
        input_b_(input_of(b, file_b)),
        siblings_a_(a, a_.rank),
        siblings_b_(b, b_.rank) {}

  FileValues run() {
    if (a_.kind == FileKind::safetensors && b_.kind == FileKind::safetensors) {
      compare_headers();
    } else if (is_json(a_) && is_json(b_)) {
      compare_json();
    } else if (a_.kind == b_.kind || (is_torch(a_.kind) && is_torch(b_.kind))) {
      compare_plain_data();
    } else {
      result_.as_bytes = a_.tensors.empty() || b_.tensors.empty();
    }
    return std::move(result_);
  }

 private:
  void put(Change change, const std::string& path, std::string old_value, std::string new_value) {
    if (result_.values.size() == most_values) {
      ++result_.more;
      return;
    }
    ValueDiff diff{.change = change,
                   .path = path,
                   .a = std::nullopt,
                   .b = std::nullopt,
                   .old_value = std::move(old_value),
                   .new_value = std::move(new_value)};
    if (change != Change::added) diff.a = DiffPlace{a_.path, a_.rank};
    if (change != Change::removed) diff.b = DiffPlace{b_.path, b_.rank};
    result_.values.push_back(std::move(diff));
  }

  [[nodiscard]] ValueSink sink() {
    return [this](Change change, const std::string& path, std::string old_value, std::string new_value) {
      put(change, path, std::move(old_value), std::move(new_value));
    };
  }

  static Bytes read(const source::Input& input, std::uint64_t offset, std::uint64_t size) {
    Bytes bytes(static_cast<std::size_t>(size));
    if (!bytes.empty()) input.read(offset, bytes);
    return bytes;
  }

  void compare_json() {
    const Bytes x = read(*input_a_, 0, a_.size);
    const Bytes y = read(*input_b_, 0, b_.size);
    if (x == y) return;
    const auto parsed_a = parse_json(as_text(x));
    const auto parsed_b = parse_json(as_text(y));
    if (parsed_a.is_discarded() || parsed_b.is_discarded()) {
      result_.as_bytes = true;
      return;
    }
    const JsonView view;
    ValueWalk<JsonView>(view, view, {}, sink()).run(&parsed_a, &parsed_b);
  }

  /// The user's own part of a safetensors header.
  static nlohmann::json metadata_of(const source::Input& input) {
    const Bytes length = read(input, 0, 8);
    const Bytes header =
        read(input, 8, std::min(load_le<std::uint64_t>(length.data()), source::max_safetensors_header));
    const std::string_view text = as_text(header);
    if (text.find("\"__metadata__\"") == std::string_view::npos) return nlohmann::json::object();
    const auto wanted = [](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
      return depth != 1 || event != nlohmann::json::parse_event_t::key || parsed == "__metadata__";
    };
    return nlohmann::json::parse(text, wanted, false);
  }

  void compare_headers() {
    const nlohmann::json x = metadata_of(*input_a_);
    const nlohmann::json y = metadata_of(*input_b_);
    if (x.is_discarded() || y.is_discarded()) {
      result_.as_bytes = true;
      return;
    }
    const JsonView view;
    ValueWalk<JsonView>(view, view, {}, sink()).run(&x, &y);
  }

  void compare_plain_data() {
    const auto x = source::find_plain_data(a_.path, a_.kind, *input_a_, siblings_a_, a_.extents);
    const auto y = source::find_plain_data(b_.path, b_.kind, *input_b_, siblings_b_, b_.extents);
    if (!x || !y) {
      // Arrays of their own say all in their tensors.
      result_.as_bytes = a_.kind != FileKind::npy;
      return;
    }
    compare_spots(x->pickles, y->pickles,
                  [&](const source::PlainSpot& from, const source::PlainSpot& to) { compare_pickles(from, to); });
    compare_spots(x->records, y->records,
                  [&](const source::PlainSpot& from, const source::PlainSpot& to) { compare_records(from, to); });
  }

  /// Those of one name pair in their order.
  template <class Compare>
  void compare_spots(const std::vector<source::PlainSpot>& from, const std::vector<source::PlainSpot>& to,
                     Compare&& compare) {
    std::multimap<std::string_view, const source::PlainSpot*> rest;
    for (const source::PlainSpot& spot : to) rest.emplace(spot.name, &spot);
    const auto about = [](const source::PlainSpot& spot) {
      return "record of " + std::to_string(spot.size) + " bytes";
    };
    for (const source::PlainSpot& spot : from) {
      const auto found = rest.lower_bound(spot.name);
      if (found == rest.end() || found->first != spot.name) {
        put(Change::removed, spot.name.empty() ? "(root)" : spot.name, about(spot), {});
        continue;
      }
      compare(spot, *found->second);
      rest.erase(found);
    }
    for (const auto& [name, spot] : rest) {
      put(Change::added, name.empty() ? "(root)" : std::string(name), {}, about(*spot));
    }
  }

  void compare_pickles(const source::PlainSpot& from, const source::PlainSpot& to) {
    const Bytes x = read(*input_a_, from.offset, from.size);
    const Bytes y = read(*input_b_, to.offset, to.size);
    if (x == y) return;
    const source::PickleResult read_a = source::read_pickle(x);
    const source::PickleResult read_b = source::read_pickle(y);
    const bool complete =
        read_a.status == source::PickleStatus::complete && read_b.status == source::PickleStatus::complete;
    if (!complete) {
      result_.as_bytes = true;
      return;
    }
    const PickleView view_a(read_a.pickle);
    const PickleView view_b(read_b.pickle);
    const auto walk = [&](std::string_view prefix, source::NodeId root_a, source::NodeId root_b) {
      ValueWalk<PickleView>(view_a, view_b, std::string(prefix), sink()).run(root_a, root_b);
    };
    if (a_.kind != FileKind::dcp_metadata) return walk(from.name, read_a.pickle.root(), read_b.pickle.root());
    // The rest says where in the files things lie.
    for (const std::string_view part : {"state_dict_metadata", "planner_data"}) {
      walk(part, read_a.pickle.attribute(read_a.pickle.root(), part),
           read_b.pickle.attribute(read_b.pickle.root(), part));
    }
  }

  void compare_records(const source::PlainSpot& from, const source::PlainSpot& to) {
    const auto digest_of = [](const source::Input& input, const source::PlainSpot& spot) {
      constexpr std::uint64_t step = 1U << 20U;
      Hasher hasher;
      for (std::uint64_t done = 0; done < spot.size; done += step) {
        hasher.update(read(input, spot.offset + done, std::min(step, spot.size - done)));
      }
      return hasher.digest();
    };
    const Digest x = digest_of(*input_a_, from);
    const Digest y = digest_of(*input_b_, to);
    if (x == y && from.size == to.size) return;
    const auto about = [](const source::PlainSpot& spot, const Digest& digest) {
      return "record of " + std::to_string(spot.size) + " bytes, xxh128 " + to_hex(digest);
    };
    put(Change::changed, from.name, about(from, x), about(to, y));
  }

  const SideFile& a_;
  const SideFile& b_;
  std::unique_ptr<source::Input> input_a_;
  std::unique_ptr<source::Input> input_b_;
  SideSiblings siblings_a_;
  SideSiblings siblings_b_;
  FileValues result_;
};

}  // namespace

FileValues compare_file_values(const DiffSide& a, std::size_t file_a, const DiffSide& b, std::size_t file_b) {
  return FileComparison(a, file_a, b, file_b).run();
}

bool have_equal_blocks(const DiffSide& a, std::size_t file_a, const DiffSide& b, std::size_t file_b) {
  const std::uint64_t size = a.files()[file_a].size;
  if (size != b.files()[file_b].size) return false;
  const auto x = a.stored(file_a);
  const auto y = x == nullptr ? nullptr : b.stored(file_b);
  if (y == nullptr) return false;
  for (std::uint64_t at = 0; at < size;) {
    const StoredFile::Place from = x->place_of(at);
    const StoredFile::Place to = y->place_of(at);
    const auto& block_x = x->container().index().blocks[from.block];
    const auto& block_y = y->container().index().blocks[to.block];
    if (from.end != to.end || from.begin != to.begin || block_x.hash != block_y.hash) return false;
    at = from.end;
  }
  return true;
}

}  // namespace ckpt::ops

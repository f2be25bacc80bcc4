// SPDX-License-Identifier: Apache-2.0
// An archive holds PREFIX/data.pkl and PREFIX/data/KEY; TorchScript adds PREFIX/constants.pkl and its records. The
// prefix is whatever the file was called when it was written.
#include "source/torch_zip.hpp"

#include "source/hash_index.hpp"
#include "source/torch_tensors.hpp"

#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ckpt::source {
namespace {

constexpr std::string_view data_folder = "data/";
constexpr std::string_view kept = "deflated entries are kept as they are";

class TorchArchive {
 public:
  TorchArchive(const Input& input, const ZipDirectory& directory, UniqueNames& names, Parsed& to)
      : input_(input), directory_(directory), data_(directory.entries.size() * 2), names_(names), to_(to) {
    const std::string_view first = directory.entries.empty() ? std::string_view{} : directory.entries.front().name;
    root_ = std::string(first.substr(0, first.find('/') + 1));
    for (std::uint32_t i = 0; i < directory.entries.size(); ++i) {
      std::string_view name = directory.entries[i].name;
      if (!name.starts_with(root_)) continue;
      name.remove_prefix(root_.size());
      if (name.starts_with(data_folder)) {
        const auto same = [&](std::uint32_t other) {
          return directory.entries[other].name == directory.entries[i].name;
        };
        data_.add(name.substr(data_folder.size()), i, same);
      } else {
        others_.emplace(name, i);
      }
    }
  }

  Verdict run(std::string_view prefix) {
    const auto data = find("data.pkl");
    if (root_.empty() || !data) return Verdict::foreign("a zip without a torch pickle");
    TreeOptions options{.prefix = prefix, .names = &names_};
    if (const auto wrong = read_byte_order(options.big_endian)) return Verdict::malformed(*wrong);
    if (options.big_endian) note("big-endian: only the widths of its elements are known");

    const Verdict verdict = read_tree(*data, "data.pkl", data_folder, options);
    if (!verdict.is_fine()) return verdict;
    const auto constants = find("constants.pkl");
    if (!constants) return verdict;
    options.prefix = "constants";
    return read_tree(*constants, "constants.pkl", "constants/", options);
  }

 private:
  [[nodiscard]] std::optional<std::uint32_t> find(std::string_view record) const {
    if (!record.starts_with(data_folder)) {
      const auto found = others_.find(record);
      return found == others_.end() ? std::nullopt : std::optional(found->second);
    }
    const std::string_view key = record.substr(data_folder.size());
    const std::uint32_t found = data_.find(key, [&](std::uint32_t i) {
      return directory_.entries[i].name.substr(root_.size() + data_folder.size()) == key;
    });
    return found == KeyIndex::absent ? std::nullopt : std::optional(found);
  }

  [[nodiscard]] const ZipEntry& entry(std::uint32_t index) const { return directory_.entries[index]; }

  void note(std::string_view text) {
    if (to_.note.empty()) to_.note = text;
  }

  std::optional<std::string> read_byte_order(bool& big_endian) {
    const auto found = find("byteorder");
    if (!found || !entry(*found).stored || entry(*found).size != 3) return std::nullopt;
    std::vector<std::uint64_t> start;
    if (auto wrong = locate_zip_data(input_, directory_, std::array{*found}, start)) return wrong;
    std::array<std::byte, 3> text{};
    input_.read(start[0], text);
    big_endian = as_text(text) == "big";
    return std::nullopt;
  }

  Verdict read_tree(std::uint32_t record, const std::string& what, std::string_view folder,
                    const TreeOptions& options) {
    if (!entry(record).stored) {
      note(kept);
      return {};
    }
    if (entry(record).size > max_pickle_bytes) return Verdict::refused(what + " is larger than 256 MiB");
    std::vector<std::uint64_t> start;
    if (auto wrong = locate_zip_data(input_, directory_, std::array{record}, start)) return Verdict::malformed(*wrong);
    HugeTable<std::byte> bytes(static_cast<std::size_t>(entry(record).size));
    if (!bytes.empty()) input_.read(start[0], bytes);

    const PickleResult pickle = read_pickle(bytes);
    if (pickle.status != PickleStatus::complete) return verdict_of(pickle, what, start[0]);
    TensorTree tree = find_tensors(pickle.pickle, options, to_.tensors);
    if (!tree.refused.empty()) return Verdict::refused(what + " is kept as it is: " + tree.refused);
    if (tree.not_understood > 0) note("some tensors aren't understood and are kept as opaque bytes");
    return place(tree, folder);
  }

  Verdict place(TensorTree& tree, std::string_view folder) {
    std::vector<std::optional<Place>> places(tree.storages.size());
    std::vector<std::uint32_t> wanted;
    std::vector<std::size_t> storage_of;
    wanted.reserve(places.size());
    storage_of.reserve(places.size());
    std::string record(folder);
    for (std::size_t i = 0; i < tree.storages.size(); ++i) {
      record.resize(folder.size());
      record += tree.storages[i].key;
      const auto found = find(record);
      if (!found) return Verdict::malformed("altered: the record '" + root_ + record + "' is missing");
      if (!entry(*found).stored) {
        note(kept);
        continue;
      }
      wanted.push_back(*found);
      storage_of.push_back(i);
    }
    std::vector<std::uint64_t> starts;
    if (auto wrong = locate_zip_data(input_, directory_, wanted, starts)) return Verdict::malformed(*wrong);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      places[storage_of[i]] = Place{starts[i], entry(wanted[i]).size};
    }
    if (auto wrong = place_tensors(tree, places, to_)) return Verdict::malformed("altered: " + *wrong);
    return {};
  }

  const Input& input_;
  const ZipDirectory& directory_;
  KeyIndex data_;
  std::unordered_map<std::string_view, std::uint32_t> others_;  ///< all but the records of data/
  UniqueNames& names_;
  Parsed& to_;
  std::string root_;
};

}  // namespace

Verdict parse_torch_archive(const Input& input, const ZipDirectory& directory, std::string_view prefix,
                            UniqueNames& names, Parsed& to) {
  return TorchArchive(input, directory, names, to).run(prefix);
}

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// Rounds from the strictest rule to the loosest: each gives every unpaired file of a side a key, and pairs those of
// equal keys in their order.
#include "ops/diff_pairs.hpp"

#include "ops/path_numbers.hpp"
#include "os/small_file.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace ckpt::ops {
namespace {

using format::EntryType;

bool is_link(const SideFile& file) { return file.type != EntryType::file; }

std::string extension_of(std::string_view path) {
  const std::string_view name = os::last_name_of(path);
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string() : std::string(name.substr(dot));
}

/// Numbers in names count by their value: step_9 comes before step_10.
bool natural_less(std::string_view a, std::string_view b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (!is_digit(a[i]) || !is_digit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
      continue;
    }
    const auto run = [](std::string_view text, std::size_t& at) {
      while (at < text.size() && text[at] == '0') ++at;
      const std::size_t begin = at;
      while (at < text.size() && is_digit(text[at])) ++at;
      return text.substr(begin, at - begin);
    };
    const std::string_view x = run(a, i);
    const std::string_view y = run(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  return std::tuple(a.size() - i, a) < std::tuple(b.size() - j, b);
}

/// A file's key in one round; nothing if the round isn't for it.
using KeyOf = std::function<std::optional<std::string>(const SideFile&)>;

class FilePairing {
 public:
  FilePairing(const std::vector<SideFile>& a, const std::vector<SideFile>& b)
      : a_(a), b_(b), partner_of_a_(a.size()), taken_b_(b.size()) {}

  /// `only_unique`: a key that several files of a side have pairs none.
  void round(const KeyOf& key_of, bool only_unique) {
    std::map<std::string, std::pair<std::vector<std::size_t>, std::vector<std::size_t>>> groups;
    for (std::size_t i = 0; i < a_.size(); ++i) {
      if (partner_of_a_[i]) continue;
      if (const auto key = key_of(a_[i])) groups[*key].first.push_back(i);
    }
    for (std::size_t i = 0; i < b_.size(); ++i) {
      if (taken_b_[i]) continue;
      if (const auto key = key_of(b_[i])) groups[*key].second.push_back(i);
    }
    for (auto& [key, group] : groups) {
      auto& [from, to] = group;
      if (only_unique && (from.size() != 1 || to.size() != 1)) continue;
      sort(a_, from);
      sort(b_, to);
      for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
        partner_of_a_[from[i]] = to[i];
        taken_b_[to[i]] = true;
      }
    }
  }

  [[nodiscard]] std::vector<FilePair> result() const {
    std::vector<FilePair> pairs;
    for (std::size_t i = 0; i < a_.size(); ++i) pairs.push_back({.a = i, .b = partner_of_a_[i]});
    for (std::size_t i = 0; i < b_.size(); ++i) {
      if (!taken_b_[i]) pairs.push_back({.a = std::nullopt, .b = i});
    }
    return pairs;
  }

 private:
  static void sort(const std::vector<SideFile>& files, std::vector<std::size_t>& indexes) {
    std::stable_sort(indexes.begin(), indexes.end(), [&](std::size_t x, std::size_t y) {
      if (files[x].rank != files[y].rank) return files[x].rank < files[y].rank;
      return natural_less(files[x].path, files[y].path);
    });
  }

  const std::vector<SideFile>& a_;
  const std::vector<SideFile>& b_;
  std::vector<std::optional<std::size_t>> partner_of_a_;
  std::vector<bool> taken_b_;
};

using TensorKey = std::pair<std::string_view, std::vector<std::int64_t>>;
TensorKey key_of(const Tensor& tensor) { return {tensor.name, tensor.global_offsets}; }

using Unpaired = std::map<TensorKey, std::deque<std::size_t>>;

std::optional<std::size_t> take(Unpaired& from, const TensorKey& key) {
  const auto found = from.find(key);
  if (found == from.end() || found->second.empty()) return std::nullopt;
  const std::size_t index = found->second.front();
  found->second.pop_front();
  return index;
}

std::vector<TensorPlace> places_of(const std::vector<SideFile>& files) {
  std::vector<TensorPlace> places;
  for (std::size_t f = 0; f < files.size(); ++f) {
    for (std::size_t t = 0; t < files[f].tensors.size(); ++t) places.push_back({.file = f, .tensor = t});
  }
  return places;
}

std::optional<std::size_t> resharded_at(const ReshardedParts& parts, const TensorPlace& place) {
  return parts.empty() ? std::nullopt : parts[place.file][place.tensor];
}

/// The first of a side's tensors of each name and place in a whole, by the path of its file without numbers, or by the
/// name alone where all paths are alike.
class Replicas {
 public:
  explicit Replicas(const std::vector<SideFile>& files) : files_(files) {
    for (std::size_t f = 0; f < files.size(); ++f) {
      const std::string path = without_numbers(files[f].path);
      for (std::size_t t = 0; t < files[f].tensors.size(); ++t) {
        Places& places = places_[key_of(files[f].tensors[t])];
        places.try_emplace(path, TensorPlace{.file = f, .tensor = t});
      }
    }
  }
  /// What another rank holds of the same as `place`, of the other side's files.
  [[nodiscard]] std::optional<TensorPlace> of(const std::vector<SideFile>& files, const TensorPlace& place) const {
    const SideFile& file = files[place.file];
    const auto known = places_.find(key_of(file.tensors[place.tensor]));
    if (known == places_.end()) return std::nullopt;
    const Places& places = known->second;
    auto found = places.find(without_numbers(file.path));
    if (found == places.end() && places.size() == 1) found = places.begin();
    if (found == places.end() || files_[found->second.file].rank == file.rank) return std::nullopt;
    return found->second;
  }

 private:
  using Places = std::map<std::string, TensorPlace>;
  const std::vector<SideFile>& files_;
  std::map<TensorKey, Places> places_;
};

/// Those that have no partner, and that one of the other side stands for.
void pair_replicas(const std::vector<SideFile>& a, const std::vector<SideFile>& b, std::vector<TensorPair>& pairs) {
  const auto is_alone = [](const TensorPair& pair) { return !pair.resharded && (!pair.a || !pair.b); };
  if (std::none_of(pairs.begin(), pairs.end(), is_alone)) return;
  const Replicas in_a(a);
  const Replicas in_b(b);
  for (TensorPair& pair : pairs) {
    if (!is_alone(pair)) continue;
    const Replica side = pair.a ? Replica::in_a : Replica::in_b;
    auto& stands_for_it = pair.a ? pair.b : pair.a;
    stands_for_it = pair.a ? in_b.of(a, *pair.a) : in_a.of(b, *pair.b);
    if (stands_for_it) pair.replica = side;
  }
}

}  // namespace

std::vector<FilePair> pair_files(const std::vector<SideFile>& a, const std::vector<SideFile>& b) {
  FilePairing pairing(a, b);
  const auto type = [](const SideFile& file) { return std::string(name_of(file.type)) + '\0'; };
  pairing.round([&](const SideFile& f) { return type(f) + std::to_string(f.rank) + '\0' + f.path; }, false);
  pairing.round([&](const SideFile& f) { return type(f) + f.path; }, false);
  const auto kind = [](const SideFile& file) {
    std::string key(name_of(file.kind));
    // What isn't understood has its kind in its name, if anywhere.
    if (file.kind == FileKind::opaque) key += extension_of(file.path);
    return key + '\0';
  };
  const auto of_files = [](const auto& key) -> KeyOf {
    return [key](const SideFile& f) -> std::optional<std::string> {
      if (is_link(f)) return std::nullopt;
      return key(f);
    };
  };
  pairing.round(of_files([&](const SideFile& f) { return kind(f) + without_numbers(f.path); }), true);
  pairing.round(of_files(kind), false);
  pairing.round(
      [](const SideFile& f) { return f.tensors.empty() ? std::nullopt : std::optional(std::string("tensors")); },
      false);
  return pairing.result();
}

std::vector<TensorPair> pair_tensors(const std::vector<SideFile>& a, const std::vector<SideFile>& b,
                                     const std::vector<FilePair>& files, const Resharding& resharding) {
  const std::vector<TensorPlace> from = places_of(a);
  const std::vector<TensorPlace> to = places_of(b);
  std::vector<std::optional<std::size_t>> first_of(b.size());  // in `to`
  for (std::size_t i = to.size(); i-- > 0;) first_of[to[i].file] = i;
  std::vector<std::optional<std::size_t>> file_for(a.size());
  for (const FilePair& pair : files) {
    if (pair.a) file_for[*pair.a] = pair.b;
  }

  std::vector<std::optional<std::size_t>> partner(from.size());
  std::vector<bool> taken(to.size());
  const auto settle = [&](std::size_t i, std::optional<std::size_t> found) {
    if (!found) return;
    partner[i] = found;
    taken[*found] = true;
  };
  for (std::size_t i = 0; i < from.size();) {
    const std::size_t file = from[i].file;
    const std::size_t end = i + a[file].tensors.size();
    Unpaired there;
    if (file_for[file] && first_of[*file_for[file]]) {
      const std::size_t first = *first_of[*file_for[file]];
      const std::vector<Tensor>& tensors = b[*file_for[file]].tensors;
      for (std::size_t t = 0; t < tensors.size(); ++t) {
        if (!resharded_at(resharding.parts_b, to[first + t])) there[key_of(tensors[t])].push_back(first + t);
      }
    }
    for (; i < end; ++i) {
      if (!resharded_at(resharding.parts_a, from[i])) settle(i, take(there, key_of(a[file].tensors[from[i].tensor])));
    }
  }

  Unpaired rest;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (resharded_at(resharding.parts_b, to[i])) taken[i] = true;
    if (!taken[i]) rest[key_of(b[to[i].file].tensors[to[i].tensor])].push_back(i);
  }
  std::vector<TensorPair> pairs;
  std::vector<bool> is_listed(resharding.tensors.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (const auto resharded = resharded_at(resharding.parts_a, from[i])) {
      if (!is_listed[*resharded]) pairs.push_back({.resharded = resharded});
      is_listed[*resharded] = true;
      continue;
    }
    if (!partner[i] && !rest.empty()) settle(i, take(rest, key_of(a[from[i].file].tensors[from[i].tensor])));
    pairs.push_back({.a = from[i], .b = partner[i] ? std::optional(to[*partner[i]]) : std::nullopt});
  }
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (!taken[i]) pairs.push_back({.a = std::nullopt, .b = to[i]});
  }
  pair_replicas(a, b, pairs);
  return pairs;
}

}  // namespace ckpt::ops

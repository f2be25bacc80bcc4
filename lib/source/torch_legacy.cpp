// SPDX-License-Identifier: Apache-2.0
// Magic number, protocol version, system information, the object and the list of storage keys are pickles; then
// each storage in the list's order: its number of elements as 64 bits, and its bytes. Nothing says how long the
// pickles are, so the head of the file is read in doubling steps until they end.
#include "source/torch_legacy.hpp"

#include "source/hash_index.hpp"
#include "source/torch_tensors.hpp"
#include "source/torch_types.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ckpt::source {
namespace {

using namespace std::string_view_literals;

// 119547037146038801333356, as LONG1 and as the decimal of protocols 0 and 1.
constexpr std::string_view binary_magic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."sv;
constexpr std::string_view text_magic = "L119547037146038801333356L\n."sv;

constexpr std::uint64_t first_step = std::uint64_t{1} << 20U;

LegacyStart compare(std::string_view text, std::string_view expected) {
  if (text.starts_with(expected)) return LegacyStart::yes;
  return expected.starts_with(text) ? LegacyStart::perhaps : LegacyStart::no;
}

struct Head {
  Bytes bytes;
  PickleResult system;
  PickleResult object;
  PickleResult keys;
  std::size_t object_begin = 0;
  std::size_t end = 0;
  Verdict verdict;
  bool wants_more = false;  ///< a pickle runs over the end of `bytes`
};

/// Reads the five pickles from the first `size` bytes.
Head read_head(const Input& input, std::uint64_t size) {
  Head head;
  head.bytes.resize(static_cast<std::size_t>(size));
  input.read(0, head.bytes);
  PickleResult unused;
  const std::pair<const char*, PickleResult*> pickles[] = {
      {"the magic number", &unused},
      {"the protocol version", &unused},
      {"the system information", &head.system},
      {"the pickled object", &head.object},
      {"the list of storages", &head.keys},
  };
  for (const auto& [what, result] : pickles) {
    const std::size_t start = head.end;
    if (result == &head.object) head.object_begin = start;
    *result = read_pickle(ByteView(head.bytes).subspan(start));
    head.verdict = verdict_of(*result, what, start);
    head.wants_more = result->status == PickleStatus::cut_short;
    if (!head.verdict.is_fine()) return head;
    head.end += result->end;
  }
  return head;
}

/// As much of the file as the five pickles take.
Head read_whole_head(const Input& input) {
  std::uint64_t size = std::min(first_step, input.size());
  Head head = read_head(input, size);
  while (head.wants_more && size < input.size() && size < max_pickle_bytes) {
    size = std::min(size * 2, input.size());
    head = read_head(input, size);
  }
  return head;
}

/// The keys in the order in which the storages lie in the file.
std::vector<std::string_view> storage_keys(const Pickle& pickle) {
  std::vector<std::string_view> keys;
  for (std::uint32_t at = pickle.first_cell(pickle.root()); at != no_node; at = pickle.cell(at).next) {
    keys.push_back(pickle.text(pickle.cell(at).value));
  }
  return keys;
}

HashIndex index_of(const HugeTable<Storage>& storages) {
  HashIndex index(storages.size());
  for (std::uint32_t i = 0; i < storages.size(); ++i) {
    const std::string_view key = storages[i].key;
    index.add(HashIndex::hash(key), i, [&](std::uint32_t other) { return storages[other].key == key; });
  }
  return index;
}

std::uint32_t look_up(const HashIndex& index, const HugeTable<Storage>& storages, std::string_view key) {
  return index.find(HashIndex::hash(key), [&](std::uint32_t i) { return storages[i].key == key; });
}

}  // namespace

LegacyStart looks_like_torch_legacy(ByteView head) {
  std::string_view text = as_text(head);
  if (text.starts_with("\x80")) {
    if (text.size() < 3)
      return text.size() < 2 || static_cast<unsigned char>(text[1]) <= 5 ? LegacyStart::perhaps : LegacyStart::no;
    text.remove_prefix(2);
    // Protocols from 4 up put the pickle into a frame.
    if (text.front() == '\x95') {
      if (text.size() < 10) return LegacyStart::perhaps;
      text.remove_prefix(9);
    }
    return compare(text, binary_magic);
  }
  return compare(text, text_magic);
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> find_legacy_object(const Input& input) {
  const Head head = read_whole_head(input);
  if (!head.verdict.is_fine()) return std::nullopt;
  return std::pair<std::uint64_t, std::uint64_t>(head.object_begin, head.object_begin + head.object.end);
}

Verdict parse_torch_legacy(const Input& input, Parsed& to) {
  Head head = read_whole_head(input);
  if (!head.verdict.is_fine()) {
    if (head.wants_more && head.bytes.size() < input.size())
      return Verdict::refused("the pickled object is larger than 256 MiB");
    return std::move(head.verdict);
  }

  UniqueNames names;
  TreeOptions options{.names = &names};
  const NodeId little = head.system.pickle.lookup(head.system.pickle.root(), "little_endian");
  options.big_endian = head.system.pickle.is(little, NodeKind::boolean) && head.system.pickle.integer(little) == 0;
  TensorTree tree = find_tensors(head.object.pickle, options, to.tensors);
  if (!tree.refused.empty()) return Verdict::refused("the pickled object is kept as it is: " + tree.refused);
  if (options.big_endian) to.note = "big-endian: only the widths of its elements are known";
  if (to.note.empty() && tree.not_understood > 0) {
    to.note = "some tensors aren't understood and are kept as opaque bytes";
  }

  // Also storages that no listed tensor uses take their place in the file.
  const HugeTable<Storage> storages = storages_in(head.object.pickle);
  const HashIndex named = index_of(storages);
  const HashIndex used = index_of(tree.storages);
  std::vector<std::optional<Place>> places(tree.storages.size());
  std::uint64_t at = head.end;
  for (const std::string_view key : storage_keys(head.keys.pickle)) {
    const std::string where = "storage '" + std::string(key) + "', at offset " + std::to_string(at);
    if (!lies_within(at, 8, input.size())) return Verdict::malformed("cut short: it ends before " + where);
    const std::uint32_t found = look_up(named, storages, key);
    // Storages follow each other without lengths in bytes: an unknown one hides where the next starts.
    if (found == HashIndex::absent) {
      return Verdict::foreign("nothing tells the element type of " + where);
    }
    const Storage& storage = storages[found];
    if (storage.stated == DType::opaque) return Verdict::foreign("the element type isn't known of " + where);
    std::array<std::byte, 8> count{};
    input.read(at, count);
    std::uint64_t elements = load_le<std::uint64_t>(count.data());
    if (options.big_endian) elements = __builtin_bswap64(elements);
    const auto bytes = checked_mul(elements, std::max(1U, bits_of(storage.stated) / 8));
    if (elements < storage.elements || !bytes) {
      return Verdict::malformed("altered: the number of elements is wrong of " + where);
    }
    if (!lies_within(at + 8, *bytes, input.size())) return Verdict::malformed("cut short: it ends inside " + where);
    const std::uint32_t listed = look_up(used, tree.storages, key);
    if (listed != HashIndex::absent) places[listed] = Place{at + 8, *bytes};
    at += 8 + *bytes;
  }
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!places[i]) {
      return Verdict::malformed("altered: storage '" + std::string(tree.storages[i].key) + "' is missing");
    }
  }
  if (auto wrong = place_tensors(tree, places, to)) return Verdict::malformed("altered: " + *wrong);
  return {};
}

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
#include "capture/frozen_layout.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <map>
#include <string_view>

namespace ckpt::capture {
namespace {

/// Below this, protecting and being told costs more than a copy.
constexpr std::uint64_t smallest_protected = std::uint64_t{128} << 10U;
/// Pieces from here on stand on the tape as they do in memory, by this alignment: misaligned copies are slower.
constexpr std::uint64_t aligned_piece = 4096;
constexpr std::uint64_t tape_alignment = 64;

constexpr const char* small_ranges = "small ranges and ends of ranges share pages with other memory";

/// The mappings that [begin, end) lies in; empty if there are gaps.
using MapSpan = std::span<const Mapping>;
MapSpan mappings_of(const std::vector<Mapping>& map, Interval at) {
  const auto first = std::upper_bound(map.begin(), map.end(), at.begin,
                                      [](std::uintptr_t a, const Mapping& m) { return a < m.at.end; });
  std::uintptr_t covered = at.begin;
  auto last = first;
  for (; last != map.end() && covered < at.end && last->at.begin <= covered; ++last) covered = last->at.end;
  if (covered < at.end) return {};
  return {first, last};
}

const char* why_not_here(MapSpan mappings) {
  for (const Mapping& mapping : mappings) {
    switch (mapping.kind) {
      case MappingKind::anonymous: break;
      case MappingKind::shared: return "memory that's shared with other processes can't be write-protected";
      case MappingKind::file: return "memory that isn't private and anonymous can't be write-protected";
      case MappingKind::unreadable: return "memory that isn't writable isn't write-protected";
    }
  }
  return nullptr;
}

class Layout {
 public:
  Layout(const std::vector<MemoryRange>& ranges, const std::string& why_never) : why_never_(why_never) {
    result_.ranges.reserve(ranges.size());
    // Where nothing will be protected, nothing need be known of the mappings.
    const bool any = std::any_of(ranges.begin(), ranges.end(), [](const MemoryRange& range) {
      return !range.copy && range.size >= smallest_protected;
    });
    if (why_never_.empty() && any) map_ = read_memory_map();
    for (const MemoryRange& range : ranges) place(range);
    cut_middles();
    for (const auto& [why, bytes] : reasons_) {
      if (result_.why_copied.empty() || bytes > reasons_[result_.why_copied]) result_.why_copied = why;
    }
  }

  FrozenLayout take() { return std::move(result_); }

 private:
  void place(const MemoryRange& range) {
    RangePlace at{.begin = reinterpret_cast<std::uintptr_t>(range.begin),
                  .size = range.size,
                  .middle = range.size,
                  .tail = range.size};
    const std::string why = range.size == 0 ? "" : why_copied(range, at);
    if (why.empty() && range.size > 0) {
      const Interval pages{page_up(at.begin), page_down(at.begin + at.size)};
      at.middle = pages.begin - at.begin;
      at.tail = pages.end - at.begin;
      middles_.push_back(pages);
      result_.protected_bytes += pages.size();
    }
    at.head_on_tape = put_on_tape(at.begin, at.middle);
    at.tail_on_tape = put_on_tape(at.begin + at.tail, at.size - at.tail);
    const std::uint64_t copied = at.middle + at.size - at.tail;
    if (copied > 0) reasons_[why.empty() ? small_ranges : why] += copied;
    result_.copied_bytes += copied;
    result_.ranges.push_back(at);
  }

  std::string why_copied(const MemoryRange& range, const RangePlace& at) const {
    if (at.begin + at.size < at.begin) throw Error(Errc::invalid_argument, "a range of memory ends before it begins");
    if (!why_never_.empty()) return why_never_;
    if (range.copy) return "copying was asked for";
    if (range.size < smallest_protected) return small_ranges;
    const MapSpan mappings = mappings_of(map_, {at.begin, at.begin + at.size});
    if (mappings.empty()) throw Error(Errc::invalid_argument, "a range of memory to freeze isn't mapped");
    const char* why = why_not_here(mappings);
    return why == nullptr ? "" : why;
  }

  std::uint64_t put_on_tape(std::uintptr_t address, std::uint64_t size) {
    if (size == 0) return 0;
    std::uint64_t& end = result_.tape_size;
    if (size >= aligned_piece) end += (address - end) % tape_alignment;
    result_.tape.push_back({.address = address, .size = size, .at = end});
    end += size;
    return end - size;
  }

  /// Middles may overlap, and span mappings: the kernel's calls want one at a time.
  void cut_middles() {
    std::sort(middles_.begin(), middles_.end(), [](Interval a, Interval b) { return a.begin < b.begin; });
    Interval joined;
    for (const Interval& middle : middles_) {
      if (!joined.empty() && middle.begin <= joined.end) {
        joined.end = std::max(joined.end, middle.end);
        continue;
      }
      cut(joined);
      joined = middle;
    }
    cut(joined);
  }

  void cut(Interval pages) {
    if (pages.empty()) return;
    for (const Mapping& mapping : mappings_of(map_, pages)) {
      const Interval here{std::max(pages.begin, mapping.at.begin), std::min(pages.end, mapping.at.end)};
      if (!result_.watched.empty() && result_.watched.back().begin >= mapping.at.begin) {
        result_.watched.back().end = here.end;
      } else {
        result_.watched.push_back(here);
      }
      for (std::uintptr_t at = here.begin; at < here.end;) {
        const std::uintptr_t end = std::min(here.end, at / cell_size * cell_size + cell_size);
        result_.protected_chunks.push_back({at, end});
        at = end;
      }
    }
  }

  const std::string& why_never_;
  std::vector<Mapping> map_;
  std::vector<Interval> middles_;
  std::map<std::string, std::uint64_t, std::less<>> reasons_;
  FrozenLayout result_;
};

}  // namespace

FrozenLayout lay_out(const std::vector<MemoryRange>& ranges, const std::string& why_never) {
  return Layout(ranges, why_never).take();
}

}  // namespace ckpt::capture

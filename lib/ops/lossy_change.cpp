// SPDX-License-Identifier: Apache-2.0
#include "ops/lossy_change.hpp"

#include "core/crc32.hpp"
#include "core/patterns.hpp"
#include "core/pipeline.hpp"
#include "core/stop.hpp"
#include "ops/shard_bytes.hpp"
#include "source/input.hpp"
#include "source/zip_checksums.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <tuple>
#include <utility>

namespace ckpt::ops {
namespace {

/// A file of a container, for a parser.
class StoredInput final : public source::Input {
 public:
  StoredInput(const format::ContainerReader& container, std::size_t file)
      : bytes_(container), file_(file), size_(container.catalog().files[file].size) {}
  [[nodiscard]] std::uint64_t size() const override { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> into) const override {
    os::AlignedBuffer buffer;
    const ByteView bytes = bytes_.read(file_, offset, into.size(), buffer);
    std::copy(bytes.begin(), bytes.end(), into.begin());
  }

 private:
  StoredBytes bytes_;
  std::size_t file_;
  std::uint64_t size_;
};

/// The archives in a file: one, or in a distributed checkpoint's several behind one another.
std::vector<source::ZipMember> members_of(const StoredInput& input, FileKind kind) {
  std::vector<source::ZipMember> members;
  std::uint64_t end = input.size();
  while (end > 0) {
    const auto begin = kind == FileKind::distcp ? source::find_zip_begin(input, end) : std::optional<std::uint64_t>(0);
    if (!begin) break;  // what lies before isn't in an archive, and then has no checksum
    const source::ZipResult zip = source::read_zip_directory(input, *begin, end);
    if (zip.status != source::ZipStatus::complete) throw Error(Errc::unsupported, zip.message);
    const auto more = source::find_zip_members(input, zip.directory);
    members.insert(members.end(), more.begin(), more.end());
    end = *begin;
  }
  return members;
}

bool has_archives(FileKind kind) {
  return kind == FileKind::torch_zip || kind == FileKind::npz || kind == FileKind::distcp;
}

bool needs_numbers(const std::vector<const LossyRule*>& rules) {
  return std::any_of(rules.begin(), rules.end(),
                     [](const LossyRule* rule) { return rule->kind != LossyRule::Kind::drop; });
}

}  // namespace

std::string verb_of(const LossyRule& rule) {
  static constexpr std::array<std::string_view, 4> types = {"int8", "int4", "fp8", "bf16"};
  switch (rule.kind) {
    case LossyRule::Kind::drop: return "dropped";
    case LossyRule::Kind::quantize:
      return "quantized to " + std::string(types[static_cast<std::size_t>(rule.quantization)]);
    case LossyRule::Kind::sparsify: {
      std::array<char, 32> text{};
      const auto end = std::to_chars(text.data(), text.data() + text.size(), rule.fraction).ptr;
      return "sparsified by " + std::string(text.data(), end);
    }
  }
  return {};
}

LossyChange::LossyChange(std::shared_ptr<const format::ContainerReader> container, const std::vector<LossyRule>& rules)
    : container_(std::move(container)), rules_(rules), matched_(rules.size()) {
  const format::Catalog& catalog = container_->catalog();
  places_.resize(catalog.block_sizes.size());
  for (std::size_t f = 0; f < catalog.files.size(); ++f) {
    const format::FileEntry& file = catalog.files[f];
    std::uint64_t begin = 0;
    for (std::uint64_t b = file.first_block; b < file.first_block + file.block_count; ++b) {
      places_[b] = {.file = f, .begin = begin, .end = begin + catalog.block_sizes[b]};
      begin = places_[b].end;
    }
  }
  for (std::size_t f = 0; f < catalog.files.size(); ++f) {
    const std::size_t before = parts_.size();
    find_parts(f, rules_);
    if (parts_.size() > before && has_archives(catalog.files[f].kind)) find_members(f);
  }
}

void LossyChange::find_parts(std::size_t f, const std::vector<LossyRule>& rules) {
  const format::Catalog& catalog = container_->catalog();
  const format::FileEntry& file = catalog.files[f];
  std::vector<PatternList> patterns;
  for (const LossyRule& rule : rules) {
    PatternList& list = patterns.emplace_back(std::vector<std::string>{rule.pattern});
    for (std::uint64_t t = file.first_tensor; t < file.first_tensor + file.tensor_count; ++t) {
      list.learn(catalog.tensors[t].name);
    }
  }
  std::vector<Part> found;  // of all tensors, also those that stay as they are
  for (std::uint64_t t = file.first_tensor; t < file.first_tensor + file.tensor_count; ++t) {
    const Tensor& tensor = catalog.tensors[t];
    const auto end = view_end(tensor);
    if (!tensor.has_bytes || !end || *end <= tensor.offset) continue;
    Part part{.file = f, .begin = tensor.offset, .end = *end, .name = tensor.name, .dtype = tensor.dtype};
    for (std::size_t r = 0; r < rules.size(); ++r) {
      if (!patterns[r].matches(tensor.name)) continue;
      // What isn't a number with a fraction keeps its values: counters, indices, masks.
      if (rules[r].kind != LossyRule::Kind::drop && !number_width(tensor.dtype)) continue;
      part.rules.push_back(&rules[r]);
      matched_[r] = true;
    }
    found.push_back(std::move(part));
  }
  std::sort(found.begin(), found.end(), [](const Part& a, const Part& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::vector<Part> joined;
  for (Part& part : found) {
    if (joined.empty() || joined.back().end <= part.begin) {
      joined.push_back(std::move(part));
      continue;
    }
    Part& last = joined.back();
    const bool other_numbers =
        needs_numbers(part.rules) &&
        (last.dtype != part.dtype || (part.begin - last.begin) % number_width(part.dtype).value_or(1) != 0);
    if (last.rules != part.rules || other_numbers) {
      const bool first_changes = !last.rules.empty();
      throw Error(Errc::unsupported, "'" + (first_changes ? last.name : part.name) + "' in '" + file.path +
                                         "' shares bytes with '" + (first_changes ? part.name : last.name) +
                                         "', which isn't to change in the same way")
          .with_hint("let the pattern match both, or neither");
    }
    last.end = std::max(last.end, part.end);
  }
  for (Part& part : joined) {
    if (part.rules.empty()) continue;
    require_whole_numbers(part);
    parts_.push_back(std::move(part));
  }
}

void LossyChange::require_whole_numbers(const Part& part) const {
  const auto width = number_width(part.dtype);
  if (!width) return;
  for (const Place& place : places_) {
    if (place.file != part.file || place.begin <= part.begin || place.begin >= part.end) continue;
    if ((place.begin - part.begin) % *width == 0) continue;
    throw Error(Errc::unsupported, "numbers of '" + part.name + "' lie across blocks");
  }
}

void LossyChange::find_members(std::size_t file) {
  const format::FileEntry& entry = container_->catalog().files[file];
  try {
    for (source::ZipMember& member : members_of(StoredInput(*container_, file), entry.kind)) {
      const bool changes = std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
        return part.file == file && part.begin < member.end && part.end > member.begin;
      });
      if (!changes) continue;
      members_.push_back(
          {.file = file, .begin = member.begin, .end = member.end, .checksums = std::move(member.checksums)});
    }
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    throw Error(Errc::unsupported, "the checksums in '" + entry.path + "' can't be made right: " + error.what());
  }
  std::sort(members_.begin(), members_.end(),
            [](const Member& a, const Member& b) { return std::tie(a.file, a.begin) < std::tie(b.file, b.begin); });
}

template <class Use>
void LossyChange::for_parts(std::uint64_t block, std::size_t size, Use use) const {
  const Place& place = places_[block];
  auto part = std::partition_point(parts_.begin(), parts_.end(), [&](const Part& p) {
    return p.file < place.file || (p.file == place.file && p.end <= place.begin);
  });
  for (; part != parts_.end() && part->file == place.file && part->begin < place.begin + size; ++part) {
    const std::uint64_t begin = std::max(part->begin, place.begin);
    const std::uint64_t end = std::min(part->end, place.begin + size);
    use(static_cast<std::size_t>(part - parts_.begin()), begin, begin - place.begin, end - begin);
  }
}

void LossyChange::change_values(const Part& part, std::uint64_t, std::span<std::byte> bytes) const {
  for (const LossyRule* rule : part.rules) {
    switch (rule->kind) {
      case LossyRule::Kind::sparsify: make_small_ones_zero(part.dtype, part.smallest_key, bytes); break;
      case LossyRule::Kind::quantize: quantize(part.dtype, rule->quantization, bytes); break;
      case LossyRule::Kind::drop: std::fill(bytes.begin(), bytes.end(), std::byte{0}); break;
    }
  }
}

bool LossyChange::touches(std::uint64_t block) const {
  bool any = false;
  const Place& place = places_[block];
  for_parts(block, place.end - place.begin, [&](auto...) { any = true; });
  const auto patch = patches_.lower_bound({place.file, place.begin < 3 ? 0 : place.begin - 3});
  return any || (patch != patches_.end() && patch->first.first == place.file && patch->first.second < place.end);
}

void LossyChange::apply(std::uint64_t block, std::span<std::byte> raw) const {
  const Place& place = places_[block];
  for_parts(block, raw.size(), [&](std::size_t part, std::uint64_t begin, std::uint64_t offset, std::uint64_t size) {
    change_values(parts_[part], begin, raw.subspan(offset, size));
  });
  auto patch = patches_.lower_bound({place.file, place.begin < 3 ? 0 : place.begin - 3});
  for (; patch != patches_.end() && patch->first.first == place.file && patch->first.second < place.end; ++patch) {
    for (std::size_t i = 0; i < 4; ++i) {
      const std::uint64_t at = patch->first.second + i;
      if (at >= place.begin && at < place.end) raw[at - place.begin] = patch->second[i];
    }
  }
}

/// The number below which so much of all lie, found 16 bits at a time: the memory doesn't depend on the tensor.
void LossyChange::find_smallest(Part& part, double fraction, unsigned jobs, Monitor& monitor) {
  const unsigned width = *number_width(part.dtype);
  const std::uint64_t count = (part.end - part.begin) / width;
  auto rank = static_cast<std::uint64_t>(std::floor(fraction * static_cast<double>(count)));
  rank = std::min(rank, count - 1);
  std::vector<std::uint64_t> blocks;
  for (std::uint64_t b = 0; b < places_.size(); ++b) {
    if (places_[b].file == part.file && places_[b].begin < part.end && places_[b].end > part.begin) blocks.push_back(b);
  }
  Pool<format::BlockDecoder> decoders;
  std::uint64_t key = 0;
  for (unsigned shift = 8 * width; shift > 0;) {
    shift -= 16;
    std::vector<std::uint64_t> histogram(std::size_t{1} << 16U);
    run_ordered(
        blocks.size(), worker_count(jobs), std::size_t{worker_count(jobs)} + 2,
        [&](std::size_t i) {
          require_no_stop(monitor);
          auto decoder = decoders.take();
          const ByteView raw = decoder->read(*container_, blocks[i]);
          const std::uint64_t begin = std::max(part.begin, places_[blocks[i]].begin) - places_[blocks[i]].begin;
          const std::uint64_t end = std::min(part.end - places_[blocks[i]].begin, raw.size());
          std::vector<std::uint32_t> counts(std::size_t{1} << 16U);
          for (std::uint64_t at = begin; at + width <= end; at += width) {
            const std::uint64_t number = magnitude_key(width, raw.data() + at);
            const bool same = shift + 16 >= 64 || number >> (shift + 16) == key >> (shift + 16);
            if (same) ++counts[(number >> shift) & 0xffffU];
          }
          return counts;
        },
        [&](std::size_t, const std::vector<std::uint32_t>& counts) {
          for (std::size_t i = 0; i < counts.size(); ++i) histogram[i] += counts[i];
        });
    std::size_t digit = 0;
    while (rank >= histogram[digit]) rank -= histogram[digit++];
    key |= std::uint64_t{digit} << shift;
  }
  part.smallest_key = key;
}

void LossyChange::prepare(unsigned jobs, Monitor& monitor) {
  for (Part& part : parts_) {
    for (const LossyRule* rule : part.rules) {
      if (rule->kind == LossyRule::Kind::sparsify) find_smallest(part, rule->fraction, jobs, monitor);
    }
  }
  std::vector<std::uint32_t> sums(members_.size());
  const auto first_member = [&](const Place& place) {
    return std::partition_point(members_.begin(), members_.end(), [&](const Member& m) {
      return m.file < place.file || (m.file == place.file && m.end <= place.begin);
    });
  };
  std::vector<std::uint64_t> blocks;
  std::uint64_t total = 0;
  for (std::uint64_t b = 0; b < places_.size(); ++b) {
    const auto member = first_member(places_[b]);
    const bool in_member =
        member != members_.end() && member->file == places_[b].file && member->begin < places_[b].end;
    if (!in_member && !touches(b)) continue;
    blocks.push_back(b);
    total += places_[b].end - places_[b].begin;
  }
  struct Changed {
    Bytes raw;
    std::vector<std::pair<std::size_t, ValueError>> errors;
  };
  Pool<format::BlockDecoder> decoders;
  std::uint64_t done = 0;
  run_ordered(
      blocks.size(), worker_count(jobs), std::size_t{worker_count(jobs)} + 2,
      [&](std::size_t i) {
        require_no_stop(monitor);
        auto decoder = decoders.take();
        const ByteView raw = decoder->read(*container_, blocks[i]);
        Changed changed{.raw = {raw.begin(), raw.end()}, .errors = {}};
        apply(blocks[i], changed.raw);
        for_parts(blocks[i], raw.size(),
                  [&](std::size_t part, std::uint64_t, std::uint64_t offset, std::uint64_t size) {
                    if (!number_width(parts_[part].dtype)) return;
                    changed.errors.emplace_back(part, difference(parts_[part].dtype, raw.subspan(offset, size),
                                                                 ByteView(changed.raw).subspan(offset, size)));
                  });
        return changed;
      },
      [&](std::size_t i, const Changed& changed) {
        for (const auto& [part, error] : changed.errors) parts_[part].error.add(error);
        const Place& place = places_[blocks[i]];
        for (auto member = first_member(place);
             member != members_.end() && member->file == place.file && member->begin < place.end; ++member) {
          const std::uint64_t begin = std::max(member->begin, place.begin);
          const std::uint64_t end = std::min(member->end, place.end);
          std::uint32_t& sum = sums[static_cast<std::size_t>(member - members_.begin())];
          sum = crc32(sum, ByteView(changed.raw).subspan(begin - place.begin, end - begin));
        }
        done += changed.raw.size();
        monitor.progress({.stage = "change", .done = done, .total = total});
      });
  for (std::size_t m = 0; m < members_.size(); ++m) {
    for (const std::uint64_t at : members_[m].checksums) store_le(patches_[{members_[m].file, at}].data(), sums[m]);
  }
}

std::vector<TensorLoss> LossyChange::losses() const {
  std::vector<TensorLoss> losses;
  for (const Part& part : parts_) {
    TensorLoss loss{.rank = container_->catalog().shard.rank,
                    .file = container_->catalog().files[part.file].path,
                    .tensor = part.name,
                    .dtype = std::string(name_of(part.dtype)),
                    .change = {},
                    .largest_error = {},
                    .mean_error = {}};
    for (const LossyRule* rule : part.rules) loss.change += (loss.change.empty() ? "" : ", ") + verb_of(*rule);
    if (part.error.count > 0) {
      loss.largest_error = part.error.largest;
      loss.mean_error = part.error.sum / static_cast<double>(part.error.count);
    }
    losses.push_back(std::move(loss));
  }
  return losses;
}

}  // namespace ckpt::ops

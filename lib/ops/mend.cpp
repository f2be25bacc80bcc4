// SPDX-License-Identifier: Apache-2.0
#include "ops/mend.hpp"

#include "core/bit_search.hpp"
#include "core/pipeline.hpp"
#include "core/stop.hpp"
#include "format/constants.hpp"
#include "format/container_reader.hpp"
#include "format/damaged.hpp"
#include "format/sealed_json.hpp"
#include "ops/check_container.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>
#include <utility>

namespace ckpt::ops {
namespace {

/// A granule with more damage than this isn't worth a search in each: the disk has lost more than bits.
constexpr std::size_t most_granules = 64;
/// Sealed texts above this take minutes to search.
constexpr std::size_t most_sealed = 65536;

std::byte mask(unsigned bit) { return static_cast<std::byte>(1U << bit); }

Bytes read_bytes(const os::AdaptiveReader& file, std::uint64_t offset, std::uint64_t size) {
  os::AlignedBuffer buffer;
  const auto view = file.read(offset, size, buffer);
  return {view.begin(), view.end()};
}

/// The bit of `data` with which XXH3-64 gives `sum`. Each worker tries its share of the bytes.
std::optional<FlippedBit> search(const Bytes& data, std::uint64_t sum, unsigned jobs, const Monitor& monitor) {
  const unsigned workers = worker_count(jobs);
  const BitSearch bits(data, sum);
  std::atomic<bool> found = false;
  std::mutex mutex;
  std::optional<FlippedBit> answer;
  run_parallel(workers, workers, [&](std::size_t worker) {
    for (std::size_t at = worker; at < data.size() && !found; at += workers) {
      require_no_stop(monitor);
      if (const auto bit = bits.bit_at(at)) {
        const std::lock_guard lock(mutex);
        answer = FlippedBit{.byte = at, .bit = *bit};
        found = true;
      }
    }
  });
  return answer;
}

/// The footer as it's read, or with one bit turned over.
std::optional<format::Footer> mend_footer(const os::AdaptiveReader& file, std::vector<FlippedBit>& flips) {
  const std::uint64_t size = std::min(file.size(), format::footer_size);
  Bytes bytes = read_bytes(file, file.size() - size, size);
  const auto try_decode = [&]() -> std::optional<format::Footer> {
    try {
      return format::decode_footer(bytes, file.size(), file.path());
    } catch (const format::Damaged&) {
      return std::nullopt;
    }
  };
  if (auto footer = try_decode()) return footer;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      bytes[at] ^= mask(bit);
      if (auto footer = try_decode()) {
        flips.push_back({.byte = file.size() - size + at, .bit = bit});
        return footer;
      }
      bytes[at] ^= mask(bit);
    }
  }
  return std::nullopt;
}

/// One XXH3-64 a granule, of the bytes as they are.
std::vector<std::uint64_t> compute_sums(const os::AdaptiveReader& file, const format::Footer& footer) {
  std::vector<std::uint64_t> sums;
  os::AlignedBuffer buffer;
  for (std::uint64_t at = 0; at < footer.sums.offset; at += check_unit) {
    const ByteView unit = file.read(at, std::min(check_unit, footer.sums.offset - at), buffer);
    for (std::uint64_t i = 0; i < unit.size(); i += format::granule) {
      sums.push_back(xxh3_64(unit.subspan(i, std::min<std::uint64_t>(format::granule, unit.size() - i))));
    }
  }
  return sums;
}

}  // namespace

Mending find_flipped_bits(const os::AdaptiveReader& file, unsigned jobs, Monitor& monitor) {
  Mending mending;
  const auto give_up = [](std::string why) { return Mending{.flips = {}, .failure = std::move(why)}; };
  const auto footer = mend_footer(file, mending.flips);
  if (!footer) return give_up("the footer is gone: the file is cut short or more than one bit of it is wrong");

  Bytes stored = read_bytes(file, footer->sums.offset, footer->sums.size);
  if (stored.size() != footer->sums.size) return give_up("the file is cut short");
  const std::vector<std::uint64_t> now = compute_sums(file, *footer);
  const auto stored_sum = [&](std::size_t i) { return load_le<std::uint64_t>(stored.data() + i * 8); };
  std::vector<std::size_t> wrong;
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (now[i] != stored_sum(i)) wrong.push_back(i);
  }

  if (xxh3_128(ByteView(stored)) != footer->sums.hash) {
    // The flip may be in the sums themselves: then one of them alone is off by one bit.
    if (wrong.size() != 1) return give_up("more than one bit is wrong");
    const std::uint64_t difference = now[wrong[0]] ^ stored_sum(wrong[0]);
    if (std::popcount(difference) != 1) return give_up("more than one bit is wrong");
    const auto position = static_cast<unsigned>(std::countr_zero(difference));
    const std::uint64_t at = wrong[0] * 8 + position / 8;
    stored[at] ^= mask(position % 8);
    if (xxh3_128(ByteView(stored)) != footer->sums.hash) return give_up("more than one bit is wrong");
    mending.flips.push_back({.byte = footer->sums.offset + at, .bit = position % 8});
    return mending;
  }
  if (wrong.size() > most_granules) return give_up(std::to_string(wrong.size()) + " granules are wrong");
  for (const std::size_t i : wrong) {
    const std::uint64_t begin = i * format::granule;
    const Bytes granule = read_bytes(file, begin, std::min(format::granule, footer->sums.offset - begin));
    const auto flip = search(granule, stored_sum(i), jobs, monitor);
    if (!flip) {
      return give_up("more than one bit is wrong in bytes " + std::to_string(begin) + ".." +
                     std::to_string(begin + granule.size()));
    }
    mending.flips.push_back({.byte = begin + flip->byte, .bit = flip->bit});
  }
  return mending;
}

std::optional<FlippedBit> find_flipped_bit(const std::string& sealed_text) {
  if (sealed_text.size() > most_sealed) return std::nullopt;
  std::string text = sealed_text;
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      const char before = text[at];
      text[at] = static_cast<char>(static_cast<unsigned char>(before) ^ (1U << bit));
      if (format::is_sealed(text)) return FlippedBit{.byte = at, .bit = bit};
      text[at] = before;
    }
  }
  return std::nullopt;
}

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
#include "format/container_stream.hpp"

#include "format/constants.hpp"
#include "format/damaged.hpp"
#include "format/ends.hpp"

#include <algorithm>

namespace ckpt::format {
namespace {

std::uint64_t sums_offset_of(std::uint64_t size, const std::string& name) {
  if (size > header_size + footer_size) {
    const std::uint64_t body = size - footer_size;
    const std::uint64_t granules = (body + granule + 7) / (granule + 8);
    const std::uint64_t offset = body - std::min(body, granules * 8);
    if ((offset + granule - 1) / granule == granules) return offset;
  }
  throw Damaged(DamageKind::altered, 0, size, "'" + name + "': no container has " + std::to_string(size) + " bytes");
}

}  // namespace

ContainerStream::ContainerStream(std::uint64_t size, const Digest& digest, std::string name)
    : name_(std::move(name)), size_(size), digest_(digest), sums_offset_(sums_offset_of(size, name_)) {}

void ContainerStream::end_granule() {
  sums_.push_back(xxh3_64(partial_));
  partial_.clear();
}

void ContainerStream::update(ByteView bytes) {
  if (bytes.size() > size_ - received_)
    throw Damaged(DamageKind::altered, size_, received_ + bytes.size(), "'" + name_ + "' is longer than it should be");
  while (!bytes.empty()) {
    std::size_t taken = bytes.size();
    if (received_ < sums_offset_) {
      taken = std::min<std::uint64_t>({taken, granule - partial_.size(), sums_offset_ - received_});
      const ByteView part = bytes.first(taken);
      if (partial_.empty() && taken == granule) {
        sums_.push_back(xxh3_64(part));
      } else {
        append(partial_, part);
        if (partial_.size() == granule || received_ + taken == sums_offset_) end_granule();
      }
    } else if (received_ < size_ - footer_size) {
      taken = std::min<std::uint64_t>(taken, size_ - footer_size - received_);
      stored_sums_.update(bytes.first(taken));
    } else {
      append(footer_, bytes);
    }
    received_ += taken;
    bytes = bytes.subspan(taken);
  }
}

void ContainerStream::finish() const {
  if (received_ != size_)
    throw Damaged(DamageKind::truncated, received_, size_,
                  "'" + name_ + "' ends after " + std::to_string(received_) + " bytes of " + std::to_string(size_));
  const auto altered = [&](const char* why) { throw Damaged(DamageKind::altered, 0, size_, "'" + name_ + "' " + why); };
  const Footer footer = decode_footer(footer_, size_, name_);
  if (footer_digest(footer_) != digest_) altered("is not the container that the manifest names");
  if (footer.sums.offset != sums_offset_ || stored_sums_.digest() != footer.sums.hash) altered("fails its sums' hash");
  if (xxh3_128(std::as_bytes(std::span(sums_))) != footer.sums.hash) altered("has bytes that differ from their sum");
}

}  // namespace ckpt::format

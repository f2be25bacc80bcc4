// SPDX-License-Identifier: Apache-2.0
// From the stored bytes of a block to its raw ones, through the blocks that it's decoded against.
#pragma once

#include "codec/typed_block.hpp"
#include "core/bytes.hpp"
#include "core/digest.hpp"
#include "format/base.hpp"
#include "os/aligned_buffer.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace ckpt::format {

class ContainerReader;
struct BlockRecord;

/// Opens the containers that the blocks of others refer to. Thread-safe.
class BaseContainers {
 public:
  virtual ~BaseContainers() = default;
  /// Throws Damaged (missing) if there's no such checkpoint or shard, and as the ContainerReader does.
  [[nodiscard]] virtual std::shared_ptr<const ContainerReader> open(const BaseCheckpoint& checkpoint,
                                                                    std::uint32_t rank) const = 0;
  /// The raw bytes of a block that can't be had from its container, from elsewhere. The caller checks them.
  [[nodiscard]] virtual std::optional<Bytes> substitute(const ContainerReader& container, std::uint64_t block) const;
};

/// A part of a container as it's stored; a view into `buffer`. Throws Damaged, also for an I/O error.
[[nodiscard]] ByteView read_stored_range(const ContainerReader& container, std::uint64_t begin, std::uint64_t size,
                                         os::AlignedBuffer& buffer);

/// The buffers of one thread. Memory is that of a few blocks, however long the chain is.
class BlockDecoder {
 public:
  /// The raw bytes of a block, checked against its hash; `stored` are its bytes in the container. A view into `stored`
  /// if it's stored raw, else into the decoder, until the next call. Throws Damaged with the block's own range, also
  /// where it's a base that is damaged.
  [[nodiscard]] ByteView decode(const ContainerReader& container, std::uint64_t block, ByteView stored);

  /// The same for a block whose stored bytes nobody has read yet.
  [[nodiscard]] ByteView read(const ContainerReader& container, std::uint64_t block);

 private:
  /// Stored bytes around small blocks, so that neighbours don't cost a read each.
  struct Window {
    Digest container;
    std::uint64_t begin = 0;
    ByteView bytes;
    os::AlignedBuffer buffer;
  };
  /// Bytes, and the buffer where they lie. Without one they're someone else's, and only to be read.
  struct Held {
    ByteView bytes;
    os::AlignedBuffer own;
  };
  /// `stored` is null if it's still to be read; `depth` is where in a chain the block is. The result is where `into`
  /// is, unless that is empty.
  Held decode_unchecked(const ContainerReader& container, std::uint64_t block, const ByteView* stored, unsigned depth,
                        std::span<std::byte> into);
  Held base_bytes(const ContainerReader& container, std::uint64_t block, unsigned depth);
  Held read_stored(const ContainerReader& container, std::uint64_t block, unsigned depth);
  ByteView decode_checked(const ContainerReader& container, std::uint64_t block, const ByteView* stored);
  ByteView decode_or_substitute(const ContainerReader& container, std::uint64_t block, const ByteView* stored);

  [[nodiscard]] os::AlignedBuffer take_buffer(std::size_t size);
  void give_back(os::AlignedBuffer buffer);
  Held put(Held held, std::span<std::byte> into);

  std::vector<os::AlignedBuffer> spare_;
  Held result_;
  std::array<Window, max_chain + 1> windows_;
  codec::TypedDecoder typed_;
  Bytes substituted_;
};

}  // namespace ckpt::format

// SPDX-License-Identifier: Apache-2.0
// Finds the smallest form of one block: as it is, packed, as numbers on their own or against a base. What it decides is
// decided by sizes on a sample; what it's told of types is used as a guess that is checked.
#pragma once

#include "codec/codec_id.hpp"
#include "codec/element.hpp"
#include "codec/typed_block.hpp"
#include "codec/typed_plan.hpp"
#include "codec/zstd_frame.hpp"
#include "core/bytes.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace ckpt::codec {

struct BlockInput {
  ByteView raw;
  Element element;
  std::uint8_t lead = 0;               ///< bytes before the first element
  bool untyped = false;                ///< the element is unknown
  ByteView base = {};                  ///< as many bytes as raw, or empty: a block that may be like this one
  ByteView master = {};                ///< twice as many bytes, or empty: float32 that this may be the rounding of
  Rounding rounding = Rounding::none;  ///< of the master
};

struct BlockForm {
  Codec codec = Codec::raw;
  bool has_base = false;  ///< it's decoded against BlockInput::base, or master for Codec::derived
};

/// Used from one thread at a time.
class BlockEncoder {
 public:
  /// With `check` what was encoded is decoded and compared, and a difference is Errc::io: the machine is at fault.
  /// `level` is zstd's for what is packed as bytes; else it follows from `effort`.
  BlockEncoder(Effort effort, bool check, std::optional<int> level = {});

  /// Appends the stored bytes to `out`, fewer than the raw ones; nothing for Codec::raw, which is stored as it is.
  [[nodiscard]] BlockForm encode(const BlockInput& input, Bytes& out);

 private:
  [[nodiscard]] BlockForm choose(const BlockInput& input, Bytes& out);
  [[nodiscard]] bool try_typed(const TypedPlan& plan, ByteView raw, ByteView base, std::size_t limit, Bytes& out);
  [[nodiscard]] bool try_packed(ByteView raw, Bytes& out);
  /// Tries both ways to store a block on its own, and takes the smaller one.
  [[nodiscard]] BlockForm smaller_alone(const TypedPlan& plan, ByteView raw, Bytes& out);
  [[nodiscard]] bool is_rounding_of_master(const BlockInput& input);
  [[nodiscard]] double packed_share(ByteView raw);
  void compare(const BlockInput& input, BlockForm form, ByteView stored);

  Effort effort_;
  bool check_;
  int level_;
  ZstdCompressor zstd_;
  TypedEncoder typed_;
  Bytes second_;  ///< what is tried beside another form
  TypedDecoder decoder_;
  os::AlignedBuffer decoded_;
};

}  // namespace ckpt::codec

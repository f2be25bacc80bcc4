// SPDX-License-Identifier: Apache-2.0
// A block as numbers of one type: predicted from a base where there's one, gathered in groups that behave alike, cut
// into planes of bytes, and each plane stored in its cheapest form.
//
//   offset  size
//        0     1  kind of number: 0 integer, 1 floating point
//        1     1  width of an element: 1, 2, 4 or 8
//        2     1  lead: bytes before the first element, less than the width
//        3     1  predictor: 0 none, 1 subtraction, 2 exclusive or
//        4     1  rounding of the base (codec "derived"): 0 none, 1 to bfloat16, 2 to float16
//        5     1  number of groups, 1 to 32
//        6     2  zero
//        8  16 n  groups: last key (1), form (1), sign (1), zero (1), elements (4), center (8)
//                 lead and tail of the block: what's before the first and behind the last whole element, as it is
//                 the streams of the groups, one after the other: see stream.hpp
//
// An element's residual is, without a predictor, its bits (of a floating point number rotated left by one, so that the
// exponent is on top); with subtraction map(value) - map(base) - center of its group, modulo two to the element's bits,
// which sign 1 folds by zigzag and sign 0 leaves as it is; or value xor base. Its group is the first one whose last key
// isn't below the key of the base's element; with one group keys are not looked at. Elements keep their order inside a
// group. How far a number moves depends on its exponent more than on anything else: that's what groups are for.
//
// A group of form 0, planes, has a stream for each byte of its residuals, the lowest first. A group of form 1, sparse,
// has a stream of bits that say which residuals aren't zero, the first one lowest, and then the planes of those alone.
#pragma once

#include "codec/element.hpp"
#include "codec/key_groups.hpp"
#include "codec/stream.hpp"
#include "core/bytes.hpp"
#include "os/aligned_buffer.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace ckpt::codec {

enum class Predictor : std::uint8_t { none = 0, subtract = 1, exclusive_or = 2 };
enum class Rounding : std::uint8_t { none = 0, to_bfloat16 = 1, to_float16 = 2 };
enum class GroupForm : std::uint8_t { planes = 0, sparse = 1 };
enum class Sign : std::uint8_t { kept = 0, folded = 1 };

struct TypedHead;

struct GroupPlan {
  std::uint8_t last_key = 0xff;
  GroupForm form = GroupForm::planes;
  Sign sign = Sign::kept;    ///< folded with subtraction alone
  std::uint64_t center = 0;  ///< subtraction alone
};

/// How a block is encoded: what a chooser decides and the payload's head says.
struct TypedPlan {
  Element element;
  std::uint8_t lead = 0;
  Predictor predictor = Predictor::none;
  Rounding rounding = Rounding::none;
  std::vector<GroupPlan> groups{GroupPlan{}};  ///< more than one only with a base that has keys; by last key
};

/// Encodes by a plan. Keeps its buffers; used from one thread at a time.
class TypedEncoder {
 public:
  /// Appends the payload to `out`. `base` has as many bytes as `raw` where the plan has a predictor, twice as many
  /// where it has a rounding.
  void encode(const TypedPlan& plan, ByteView raw, ByteView base, Effort effort, Bytes& out);

 private:
  template <class T>
  void encode_elements(const TypedPlan& plan, std::size_t head_at, ByteView values, ByteView base, Effort effort,
                       Bytes& out);
  /// residuals(first, count, to) gives a chunk; `kept` has room for those of a sparse group that aren't zero.
  template <class T, class Residuals>
  void encode_group(GroupForm form, std::size_t count, std::byte* kept, Residuals residuals, Effort effort, Bytes& out);

  StreamEncoder streams_;
  os::AlignedBuffer residuals_;
  os::AlignedBuffer planes_;
  os::AlignedBuffer rounded_;
};

/// Decodes payloads, which needn't be sound. Keeps its buffers; used from one thread at a time.
class TypedDecoder {
 public:
  /// Fills `raw`; false if the payload is none for a block of this size. `base` is empty, or has as many bytes; it may
  /// be `raw` itself.
  [[nodiscard]] bool decode(ByteView payload, ByteView base, std::span<std::byte> raw);
  /// The same against the rounding of `base`, which has twice as many bytes.
  [[nodiscard]] bool decode_derived(ByteView payload, ByteView base, std::span<std::byte> raw);

  /// Whether decode() would give `raw`: it's decoded in pieces, which are compared while the cache holds them.
  [[nodiscard]] bool decodes_to(ByteView raw, ByteView payload, ByteView base);
  [[nodiscard]] bool derived_decodes_to(ByteView raw, ByteView payload, ByteView base);

 private:
  class Target;
  [[nodiscard]] bool decode_any(ByteView payload, ByteView base, bool derived, Target& target);
  template <class T>
  [[nodiscard]] bool decode_elements(const TypedHead& head, ByteReader& in, ByteView base, Target& target);
  template <class T>
  class GroupReader;
  template <class T>
  class GroupsAhead;

  StreamDecoder streams_;
  os::AlignedBuffer residuals_;
  os::AlignedBuffer planes_;
  os::AlignedBuffer rounded_;
};

}  // namespace ckpt::codec

// SPDX-License-Identifier: Apache-2.0
// Whether a stream is worth a Huffman code is told from a sample of it: most planes are either noise, which costs time
// to find out by trying, or skewed. A Huffman code has a bit a byte at least, so streams that are mostly one value are
// left to zstd's matches, which find the runs of it.
#include "codec/stream.hpp"

#include "codec/byte_histogram.hpp"
#include "os/aligned_buffer.hpp"

#include <ckpt/error.hpp>

#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_c_literalCompressionMode: Huffman codes also at negative levels
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace ckpt::codec {
namespace {

constexpr std::size_t sample_size = 8192;
/// Bits a byte above which a stream is noise.
constexpr double noise = 7.92;
/// Bits a byte below which runs of one value are better than a code for each; and below which they are where equal
/// bytes stand together.
constexpr double mostly_one_value = 0.95;
constexpr double often_one_value = 1.3;
constexpr double clustered = 0.15;

/// What zstd looks for. On streams of real series with 0.5 to 1.3 bits a byte, matches of less than seven bytes make
/// both sides slower and the frame larger, and a small table finds as many runs as a large one.
enum class Search : std::uint8_t { nothing, runs, matches };

int level_of(Search search) {
  constexpr int so_low_that_nothing_is_found = -(1 << 17);
  switch (search) {
    case Search::nothing: return so_low_that_nothing_is_found;
    case Search::runs: return 1;
    case Search::matches: return 3;
  }
  return 0;
}

void check(std::size_t result) {
  if (ZSTD_isError(result) != 0) throw Error(Errc::io, std::string("zstd: ") + ZSTD_getErrorName(result));
}

bool is_constant(ByteView stream) {
  // Compared with itself, one further on.
  return std::memcmp(stream.data(), stream.data() + 1, stream.size() - 1) == 0;
}

void append_stream(StreamMethod method, ByteView stored, Bytes& out) {
  append_le(out, static_cast<std::uint8_t>(method));
  append_le(out, static_cast<std::uint32_t>(stored.size()));
  append(out, stored);
}

}  // namespace

struct StreamEncoder::State {
  struct Free {
    void operator()(ZSTD_CCtx* c) const { ZSTD_freeCCtx(c); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> context{ZSTD_createCCtx()};
  os::AlignedBuffer first, second;  ///< not `out` itself: that would be filled before it's written

  /// A view into `room`; as large as the stream if it doesn't get smaller.
  ByteView compress(ByteView in, Search search, os::AlignedBuffer& room) {
    room.reserve(in.size());
    check(ZSTD_CCtx_reset(context.get(), ZSTD_reset_session_and_parameters));
    const auto set = [this](ZSTD_cParameter parameter, int value) {
      check(ZSTD_CCtx_setParameter(context.get(), parameter, value));
    };
    set(ZSTD_c_compressionLevel, level_of(search));
    if (search == Search::nothing) set(ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    if (search == Search::runs) {
      set(ZSTD_c_strategy, ZSTD_fast);
      set(ZSTD_c_hashLog, 10);
      set(ZSTD_c_minMatch, 7);
    }
    const std::size_t size = ZSTD_compress2(context.get(), room.data(), in.size(), in.data(), in.size());
    return {room.data(), ZSTD_isError(size) != 0 ? in.size() : size};
  }
};

StreamEncoder::StreamEncoder() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
}
StreamEncoder::~StreamEncoder() = default;
StreamEncoder::StreamEncoder(StreamEncoder&&) noexcept = default;
StreamEncoder& StreamEncoder::operator=(StreamEncoder&&) noexcept = default;

void StreamEncoder::encode(ByteView stream, Effort effort, Bytes& out) {
  if (stream.empty()) return append_stream(StreamMethod::raw, stream, out);
  if (is_constant(stream)) return append_stream(StreamMethod::constant, stream.first(1), out);
  const double entropy = sample_histogram(stream, sample_size).entropy();
  if (entropy >= noise) return append_stream(StreamMethod::raw, stream, out);
  const bool runs =
      entropy < mostly_one_value || (entropy < often_one_value && sample_clustering(stream, sample_size) > clustered);
  ByteView packed = state_->compress(stream, runs ? Search::runs : Search::nothing, state_->first);
  if (effort == Effort::best && entropy > 0) {
    const ByteView other = state_->compress(stream, runs ? Search::nothing : Search::matches, state_->second);
    if (other.size() < packed.size()) packed = other;
  }
  const bool smaller = packed.size() < stream.size();
  append_stream(smaller ? StreamMethod::zstd : StreamMethod::raw, smaller ? packed : stream, out);
}

struct StreamDecoder::State {
  struct Free {
    void operator()(ZSTD_DCtx* d) const { ZSTD_freeDCtx(d); }
  };
  std::unique_ptr<ZSTD_DCtx, Free> context{ZSTD_createDCtx()};
};

StreamDecoder::StreamDecoder() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

ByteView StreamDecoder::view(ByteReader& in, std::size_t size, std::byte* scratch) {
  const auto method = in.number<std::uint8_t>();
  const auto stored_size = in.number<std::uint32_t>();
  if (!method || !stored_size) return {};
  const auto stored = in.take(*stored_size);
  if (!stored) return {};
  switch (static_cast<StreamMethod>(*method)) {
    case StreamMethod::raw: return stored->size() == size ? *stored : ByteView();
    case StreamMethod::constant:
      if (stored->size() != 1) return {};
      std::memset(scratch, std::to_integer<int>(stored->front()), size);
      return {scratch, size};
    case StreamMethod::zstd:
      if (ZSTD_decompressDCtx(state_->context.get(), scratch, size, stored->data(), stored->size()) != size) return {};
      return {scratch, size};
  }
  return {};
}

bool StreamDecoder::decode(ByteReader& in, std::span<std::byte> into) {
  if (into.empty()) {
    const auto method = in.number<std::uint8_t>();
    const auto size = in.number<std::uint32_t>();
    return method == static_cast<std::uint8_t>(StreamMethod::raw) && size == 0U;
  }
  const ByteView bytes = view(in, into.size(), into.data());
  if (bytes.empty()) return false;
  if (bytes.data() != into.data()) std::memcpy(into.data(), bytes.data(), bytes.size());
  return true;
}

}  // namespace ckpt::codec

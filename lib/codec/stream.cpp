// SPDX-License-Identifier: Apache-2.0
// Whether a stream is worth a Huffman code is told from a sample of it: most planes are either noise, which costs time
// to find out by trying, or skewed. A Huffman code has a bit a byte at least, so streams that are mostly one value are
// left to zstd's matches, which find the runs of it.
#include "codec/stream.hpp"

#include "codec/byte_histogram.hpp"

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
/// Bits a byte below which runs of one value are better than a code for each.
constexpr double mostly_one_value = 1.3;
/// So far below zero that no matches are looked for: zstd's lowest level.
constexpr int huffman_only = -(1 << 17);
constexpr int match_level = 1;
constexpr int best_level = 3;

void check(std::size_t result) {
  if (ZSTD_isError(result) != 0) throw Error(Errc::io, std::string("zstd: ") + ZSTD_getErrorName(result));
}

bool is_constant(ByteView stream) {
  // Compared with itself, one further on.
  return std::memcmp(stream.data(), stream.data() + 1, stream.size() - 1) == 0;
}

void put_head(std::byte* at, StreamMethod method, std::size_t size) {
  *at = static_cast<std::byte>(method);
  store_le(at + 1, static_cast<std::uint32_t>(size));
}

}  // namespace

struct StreamEncoder::State {
  struct Free {
    void operator()(ZSTD_CCtx* c) const { ZSTD_freeCCtx(c); }
  };
  std::unique_ptr<ZSTD_CCtx, Free> context{ZSTD_createCCtx()};
  Bytes second;

  std::size_t compress(ByteView in, int level, std::byte* out, std::size_t room) {
    check(ZSTD_CCtx_reset(context.get(), ZSTD_reset_session_and_parameters));
    check(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level));
    if (level < 0) {
      check(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_literalCompressionMode, ZSTD_ps_enable));
    }
    const std::size_t size = ZSTD_compress2(context.get(), out, room, in.data(), in.size());
    // A result that has no room is no smaller than the stream.
    return ZSTD_isError(size) != 0 ? in.size() : size;
  }
};

StreamEncoder::StreamEncoder() : state_(std::make_unique<State>()) {
  if (state_->context == nullptr) throw std::bad_alloc();
}
StreamEncoder::~StreamEncoder() = default;
StreamEncoder::StreamEncoder(StreamEncoder&&) noexcept = default;
StreamEncoder& StreamEncoder::operator=(StreamEncoder&&) noexcept = default;

void StreamEncoder::encode(ByteView stream, Effort effort, Bytes& out) {
  const std::size_t at = out.size();
  if (stream.empty()) {
    out.resize(at + stream_head);
    put_head(out.data() + at, StreamMethod::raw, 0);
    return;
  }
  if (is_constant(stream)) {
    out.resize(at + stream_head + 1);
    put_head(out.data() + at, StreamMethod::constant, 1);
    out[at + stream_head] = stream[0];
    return;
  }
  // Room for the stream as it is: what is larger isn't taken.
  out.resize(at + stream_head + stream.size());
  std::byte* const body = out.data() + at + stream_head;
  std::size_t size = stream.size();
  const double entropy = sample_histogram(stream, sample_size).entropy();
  if (entropy < noise) {
    const bool runs = entropy < mostly_one_value;
    size = state_->compress(stream, runs ? match_level : huffman_only, body, size);
    if (effort == Effort::best && entropy > 0) {
      state_->second.resize(size);
      const std::size_t other =
          state_->compress(stream, runs ? huffman_only : best_level, state_->second.data(), state_->second.size());
      if (other < size) {
        std::memcpy(body, state_->second.data(), other);
        size = other;
      }
    }
  }
  if (size >= stream.size()) {
    std::memcpy(body, stream.data(), stream.size());
    put_head(out.data() + at, StreamMethod::raw, stream.size());
    return;
  }
  put_head(out.data() + at, StreamMethod::zstd, size);
  out.resize(at + stream_head + size);
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

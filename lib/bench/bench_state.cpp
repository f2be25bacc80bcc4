// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_state.hpp"

#include "core/bytes.hpp"
#include "os/fd.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <thread>
#include <utility>

namespace ckpt::measure {
namespace {

constexpr std::size_t page_floats = 4096 / sizeof(float);
constexpr std::size_t noise_size = 4096;

/// S. Vigna's splitmix64, of any place in its sequence.
std::uint64_t random_at(std::uint64_t place) {
  std::uint64_t z = (place + 1) * 0x9e3779b97f4a7c15U;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

/// The sum of three uniform numbers is normal enough for weights, with a deviation of 1.
float normal_at(std::uint64_t place) {
  constexpr std::uint64_t mask = (1U << 21U) - 1;
  const std::uint64_t r = random_at(place);
  const std::uint64_t sum = (r & mask) + ((r >> 21U) & mask) + ((r >> 42U) & mask);
  return static_cast<float>(sum) * (2.0F / static_cast<float>(mask)) - 3.0F;
}

std::string safetensors_header(const std::vector<StateTensor>& tensors) {
  std::string text = "{";
  std::uint64_t at = 0;
  for (const StateTensor& tensor : tensors) {
    const std::uint64_t end = at + tensor.count * sizeof(float);
    text += fmt::format("{}\"{}\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        text.size() > 1 ? "," : "", tensor.name, tensor.count, at, end);
    at = end;
  }
  text += '}';
  // The data begins at a multiple of eight.
  text.resize(align_up(text.size(), 8), ' ');
  return text;
}

}  // namespace

FloatMemory::FloatMemory(std::size_t count) : count_(count) {
  void* data = ::mmap(nullptr, count * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<float*>(data);
  (void)::madvise(data, count * sizeof(float), MADV_HUGEPAGE);
}

FloatMemory::FloatMemory(FloatMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}

FloatMemory::~FloatMemory() {
  if (data_ != nullptr) (void)::munmap(data_, count_ * sizeof(float));
}

State::State(std::uint64_t bytes, std::uint32_t ranks, std::uint32_t tensors, std::uint64_t seed) : seed_(seed) {
  const std::uint64_t count = bytes / sizeof(float) / ranks / tensors;
  if (count == 0) {
    throw Error(Errc::invalid_argument,
                fmt::format("{} bytes are too few for {} ranks with {} tensors each", bytes, ranks, tensors));
  }
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < tensors; ++i) {
    tensors_.push_back({.name = fmt::format("layers.{}.weight", i), .offset = at, .count = count});
    at += align_up(count, page_floats);
  }
  for (std::uint32_t rank = 0; rank < ranks; ++rank) memory_.emplace_back(at);
  for (std::size_t i = 0; i < 2 * noise_size; ++i) noise_.push_back(normal_at(~seed + i % noise_size) * 1e-4F);
}

void State::reset(unsigned threads) {
  const auto fill = [this](unsigned part, unsigned parts) {
    for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
      const std::span<float> floats = memory(rank);
      const std::uint64_t first = random_at(seed_) + rank * (std::uint64_t{1} << 48U);
      const std::size_t end = floats.size() * (part + 1) / parts;
      for (std::size_t i = floats.size() * part / parts; i < end; ++i) floats[i] = normal_at(first + i) * 0.02F;
    }
  };
  std::vector<std::jthread> running;
  for (unsigned part = 1; part < threads; ++part) running.emplace_back(fill, part, threads);
  fill(0, threads);
}

void State::update(std::uint64_t step, double share, std::size_t part, std::size_t parts) {
  for (std::size_t rank = 0; rank < memory_.size(); ++rank) {
    const auto changed = static_cast<std::size_t>(static_cast<double>(memory(rank).size()) * share);
    const std::size_t begin = changed * part / parts;
    std::span<float> floats = memory(rank).subspan(begin, changed * (part + 1) / parts - begin);
    const float* noise = noise_.data() + random_at(step + rank) % noise_size;
    while (!floats.empty()) {
      const std::size_t count = std::min(floats.size(), noise_size);
      float* weights = floats.data();
      for (std::size_t i = 0; i < count; ++i) weights[i] = weights[i] * 0.9999F + noise[i];
      floats = floats.subspan(count);
    }
  }
}

std::uint64_t State::bytes() const { return memory_.size() * tensors_.size() * tensors_.front().count * sizeof(float); }

void State::write_file(std::size_t rank, const std::string& path) const {
  os::Fd fd = os::open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const std::string header = safetensors_header(tensors_);
  Bytes length;
  append_le<std::uint64_t>(length, header.size());
  os::write_all(fd, length, path);
  os::write_all(fd, as_bytes(header), path);
  for (const StateTensor& each : tensors_) os::write_all(fd, std::as_bytes(tensor(rank, each)), path);
  fd.close(path);
}

}  // namespace ckpt::measure

// SPDX-License-Identifier: Apache-2.0
// A save of the C interface.
#include "capi/handles.hpp"

#include <ckpt/ckpt.h>
#include <ckpt/address.hpp>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace ckpt::capi {
namespace {

ByteView bytes_at(const void* bytes, std::uint64_t size) {
  const auto* const begin = static_cast<const std::byte*>(bytes);
  if (size > 0) (void)required(begin, "the bytes");
  return {begin, size};
}

std::vector<std::int64_t> numbers_at(const std::int64_t* numbers, std::uint32_t count) {
  return numbers == nullptr ? std::vector<std::int64_t>{} : std::vector<std::int64_t>(numbers, numbers + count);
}

NamedTensor tensor_of(const ckpt_tensor& given) {
  constexpr std::uint32_t most_dims = 64;
  if (given.dims > most_dims) refuse("a tensor has 64 dimensions at most");
  NamedTensor named;
  Tensor& tensor = named.tensor;
  tensor.name = &required(given.name, "the tensor's name");
  const std::string_view dtype = &required(given.dtype, "the tensor's type");
  const auto known = dtype_from_name(dtype);
  if (!known) refuse("'" + std::string(dtype) + "' is no type of a tensor");
  tensor.dtype = *known;
  tensor.offset = given.offset;
  if (given.dims > 0) (void)required(given.shape, "the tensor's shape");
  tensor.shape = numbers_at(given.shape, given.dims);
  tensor.strides = given.strides != nullptr ? numbers_at(given.strides, given.dims) : contiguous_strides(tensor.shape);
  if ((given.global_shape == nullptr) != (given.global_offsets == nullptr))
    refuse("a part of a tensor has a global shape and global offsets");
  tensor.global_shape = numbers_at(given.global_shape, given.dims);
  tensor.global_offsets = numbers_at(given.global_offsets, given.dims);
  named.range = given.range;
  return named;
}

Save& save_of(ckpt_save* save) { return *required(save, "the save").save; }

}  // namespace
}  // namespace ckpt::capi

using namespace ckpt::capi;

int ckpt_save_new(ckpt_saver* saver, uint64_t step, ckpt_save** save) {
  return guarded([&] {
    required(save, "the place for the save") = nullptr;
    required(saver, "the saver").process.require();
    if (step > ckpt::max_step) refuse("the step is above " + std::to_string(ckpt::max_step));
    *save = new ckpt_save{.save = std::make_shared<Save>(saver->saver, step)};
  });
}

int ckpt_save_meta(ckpt_save* save, const char* key, const char* value) {
  return guarded([&] { save_of(save).add_meta(&required(key, "the key"), &required(value, "the value")); });
}

int ckpt_save_memory(ckpt_save* save, const void* data, uint64_t size, int keep, uint64_t* range) {
  return ckpt_save_memories(save, &data, &size, 1, keep, range);
}

int ckpt_save_memories(ckpt_save* save, const void* const* data, const uint64_t* sizes, size_t count, int keep,
                       uint64_t* first) {
  return guarded([&] {
    if (keep < CKPT_KEEP_BEST || keep > CKPT_KEEP_STEADY) refuse("no such way to keep memory");
    for (std::size_t i = 0; i < count; ++i) {
      const ckpt::ByteView bytes = bytes_at((&required(data, "the ranges"))[i], (&required(sizes, "the sizes"))[i]);
      const std::uint64_t range = save_of(save).add_memory({.begin = bytes.data(),
                                                            .size = bytes.size(),
                                                            .copy = keep == CKPT_KEEP_COPY,
                                                            .steady = keep == CKPT_KEEP_STEADY});
      if (i == 0 && first != nullptr) *first = range;
    }
  });
}

int ckpt_save_freeze(ckpt_save* save) {
  return guarded([&] { save_of(save).freeze(); });
}

int ckpt_save_file(ckpt_save* save, const char* path, const void* bytes, uint64_t size) {
  return guarded([&] {
    save_of(save).describe(
        [&](CapturedFiles& files) { files.add_file(&required(path, "the path"), bytes_at(bytes, size)); });
  });
}

int ckpt_save_archive(ckpt_save* save, const char* path, const char* prefix) {
  return guarded([&] {
    save_of(save).describe([&](CapturedFiles& files) {
      files.begin_archive(&required(path, "the path"), &required(prefix, "the prefix"));
    });
  });
}

int ckpt_save_record(ckpt_save* save, const char* name, const void* bytes, uint64_t size) {
  return guarded([&] {
    save_of(save).describe(
        [&](CapturedFiles& files) { files.add_record(&required(name, "the name"), bytes_at(bytes, size)); });
  });
}

int ckpt_save_record_of(ckpt_save* save, const char* name, uint64_t range, uint64_t size) {
  return guarded([&] {
    save_of(save).describe(
        [&](CapturedFiles& files) { files.add_record_of(&required(name, "the name"), range, size); });
  });
}

int ckpt_save_tensor(ckpt_save* save, const ckpt_tensor* tensor) {
  return guarded([&] {
    NamedTensor named = tensor_of(required(tensor, "the tensor"));
    save_of(save).describe([&](CapturedFiles& files) { files.add_tensor(std::move(named)); });
  });
}

int ckpt_save_start(ckpt_save* save) {
  return guarded([&] { save_of(save).start(); });
}

enum ckpt_state ckpt_save_state(const ckpt_save* save) {
  ckpt_state state = CKPT_STATE_FAILED;
  (void)guarded([&] { state = required(save, "the save").save->state(); });
  return state;
}

int ckpt_save_released(const ckpt_save* save) {
  int released = 0;
  (void)guarded([&] { released = required(save, "the save").save->is_released() ? 1 : 0; });
  return released;
}

int ckpt_save_wait(ckpt_save* save, double timeout, int until_durable) {
  Failure failure;
  const int status = guarded([&] { failure = save_of(save).wait(deadline_after(timeout), until_durable != 0); });
  return status != CKPT_OK ? status : tell(failure);
}

int ckpt_save_timings(const ckpt_save* save, ckpt_timings* timings) {
  return guarded([&] {
    const std::size_t size = required(timings, "the timings").struct_size;
    ckpt_timings known{};
    if (size < sizeof(std::size_t)) refuse("the timings don't say their size");
    required(save, "the save").save->timings(known);
    known.struct_size = std::min(size, sizeof known);
    std::memcpy(timings, &known, known.struct_size);
  });
}

void ckpt_save_free(ckpt_save* save) {
  if (save == nullptr) return;
  (void)guarded([&] { save->save->abandon(); });
  delete save;
}

// SPDX-License-Identifier: Apache-2.0
// Unaligned access to elements, for the files of kernels.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ckpt::codec {
namespace {

template <class T>
struct Unaligned {
  T value;
} __attribute__((packed, may_alias));

template <class T>
const Unaligned<T>* in_as(const std::byte* p) {
  return reinterpret_cast<const Unaligned<T>*>(p);
}
template <class T>
Unaligned<T>* out_as(std::byte* p) {
  return reinterpret_cast<Unaligned<T>*>(p);
}

template <class T>
constexpr unsigned bits = sizeof(T) * 8;
template <class T>
constexpr T sign_bit = static_cast<T>(T{1} << (bits<T> - 1));

}  // namespace
}  // namespace ckpt::codec

// SPDX-License-Identifier: Apache-2.0
#include "torch/dtype_names.hpp"

#include <array>
#include <cctype>
#include <utility>

namespace ckpt::torch {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 13> own_names = {{
    {"Byte", "uint8"},
    {"Char", "int8"},
    {"Short", "int16"},
    {"Int", "int32"},
    {"Long", "int64"},
    {"Half", "float16"},
    {"Float", "float32"},
    {"Double", "float64"},
    {"Bool", "bool"},
    {"ComplexHalf", "complex32"},
    {"ComplexFloat", "complex64"},
    {"ComplexDouble", "complex128"},
    {"BFloat16", "bfloat16"},
}};

}  // namespace

std::string dtype_name(c10::ScalarType type) {
  std::string name = c10::toString(type);
  for (const auto& [theirs, ours] : own_names) {
    if (name == theirs) return ours;
  }
  // Those that came later are called alike: Float8_e4m3fn, UInt16.
  if (name.rfind("Float", 0) != 0 && name.rfind("UInt", 0) != 0) return "";
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

std::optional<c10::ScalarType> dtype_named(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    const auto type = static_cast<c10::ScalarType>(i);
    if (dtype_name(type) == name) return type;
  }
  return std::nullopt;
}

}  // namespace ckpt::torch

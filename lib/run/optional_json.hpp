// SPDX-License-Identifier: Apache-2.0
// What may not be there, as JSON: null stands for nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace ckpt::run {

template <class T>
[[nodiscard]] nlohmann::json optional_json(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

template <class T>
[[nodiscard]] std::optional<T> optional_from(const nlohmann::json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<T>();
}

}  // namespace ckpt::run

// SPDX-License-Identifier: Apache-2.0
// What Redis answered, as plain data. It came from outside: each access says what it expects and throws io if it's not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ckpt::doors {

class RedisValue {
 public:
  RedisValue() = default;
  explicit RedisValue(std::int64_t number) : value_(number) {}
  explicit RedisValue(std::string text) : value_(std::move(text)) {}
  explicit RedisValue(std::vector<RedisValue> items) : value_(std::move(items)) {}

  [[nodiscard]] bool is_nil() const { return std::holds_alternative<std::monostate>(value_); }
  [[nodiscard]] std::int64_t number() const;
  [[nodiscard]] const std::string& text() const;
  [[nodiscard]] const std::vector<RedisValue>& items() const;
  /// Of a list.
  [[nodiscard]] const RedisValue& at(std::size_t index) const;
  [[nodiscard]] std::size_t size() const { return items().size(); }

 private:
  std::variant<std::monostate, std::int64_t, std::string, std::vector<RedisValue>> value_;
};

/// A number of digits only. Throws io.
[[nodiscard]] std::uint64_t redis_number(std::string_view digits);

}  // namespace ckpt::doors

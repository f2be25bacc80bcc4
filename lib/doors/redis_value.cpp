// SPDX-License-Identifier: Apache-2.0
#include "doors/redis_value.hpp"

#include <ckpt/error.hpp>

#include <charconv>

namespace ckpt::doors {
namespace {

[[noreturn]] void refuse(const char* wanted) {
  throw Error(Errc::io, std::string("Redis answered with something else than ") + wanted);
}

template <class T, class Value>
const T& expect(const Value& value, const char* wanted) {
  const T* got = std::get_if<T>(&value);
  if (got == nullptr) refuse(wanted);
  return *got;
}

}  // namespace

std::int64_t RedisValue::number() const { return expect<std::int64_t>(value_, "a number"); }
const std::string& RedisValue::text() const { return expect<std::string>(value_, "a text"); }
const std::vector<RedisValue>& RedisValue::items() const { return expect<std::vector<RedisValue>>(value_, "a list"); }

const RedisValue& RedisValue::at(std::size_t index) const {
  if (index >= size()) refuse("a list that long");
  return items()[index];
}

std::uint64_t redis_number(std::string_view digits) {
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc{} || stopped != end || digits.empty()) refuse("digits");
  return value;
}

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
#include "run/notice.hpp"

#include <algorithm>
#include <charconv>
#include <vector>

namespace ckpt::run {
namespace {

constexpr std::size_t longest_heard = 256;
/// Longer than any evaluation, and small enough to be added to any time.
constexpr std::chrono::hours longest_extension(24 * 30);

template <class T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string printable_line(std::string_view text) {
  std::string line(text.substr(0, longest_heard));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, ' ');
  return line;
}

void take(Notice& notice, std::string_view name, std::string_view value) {
  if (name == "WATCHDOG") {
    notice.alive |= value == "1";
    notice.gives_up |= value == "trigger";
  } else if (name == "STATUS") {
    notice.status = printable_line(value);
  } else if (name == "EXTEND_TIMEOUT_USEC") {
    constexpr auto most = std::chrono::microseconds(longest_extension);
    if (const auto given = number_of<std::uint64_t>(value))
      notice.extend = std::chrono::microseconds(std::min(*given, static_cast<std::uint64_t>(most.count())));
  }
}

std::vector<std::string_view> words_of(std::string_view text) {
  constexpr std::string_view between = " =:,\t";
  std::vector<std::string_view> words;
  while (true) {
    const auto begin = text.find_first_not_of(between);
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    const auto end = std::min(text.find_first_of(between), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

}  // namespace

Notice parse_notice(std::string_view datagram) {
  Notice notice;
  while (!datagram.empty()) {
    const auto end = std::min(datagram.find('\n'), datagram.size());
    const std::string_view line = datagram.substr(0, end);
    datagram.remove_prefix(std::min(end + 1, datagram.size()));
    const auto equals = line.find('=');
    if (equals != std::string_view::npos) take(notice, line.substr(0, equals), line.substr(equals + 1));
  }
  return notice;
}

StatusNumbers parse_status(std::string_view status) {
  StatusNumbers numbers;
  const auto words = words_of(status);
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i] == "step" && !numbers.step) numbers.step = number_of<std::uint64_t>(words[i + 1]);
    if (words[i] == "loss" && !numbers.loss) numbers.loss = number_of<double>(words[i + 1]);
  }
  return numbers;
}

}  // namespace ckpt::run

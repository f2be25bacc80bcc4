// SPDX-License-Identifier: Apache-2.0
// The temporary's name doesn't end in .prom, so that the collector never reads it.
#include "cli/metrics_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <ckpt/error.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>

#include "cli/record.hpp"
#include "cli/text_escape.hpp"

namespace ckpt::cli {
namespace {

std::string prometheus_number(double value) {
  const std::string text = number_text(value);
  if (text == "Infinity") return "+Inf";
  return text == "-Infinity" ? "-Inf" : text;
}

int write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return 0;
}

int write_new_file(const std::string& path, std::string_view text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) return errno;
  int failure = write_whole(fd, text);
  if (::close(fd) != 0 && failure == 0) failure = errno;
  return failure;
}

}  // namespace

std::string MetricsFile::label(std::string_view name, std::string_view value) {
  std::string out = fmt::format("{}=\"", name);
  // A file that isn't UTF-8 is refused as a whole.
  const bool is_text = is_utf8(value);
  for (const char given : value) {
    const char c = is_text || static_cast<unsigned char>(given) < 0x80 ? given : '?';
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

void Histogram::add(double value) {
  const auto bound = std::ranges::lower_bound(bounds_, value);
  ++counts_[static_cast<std::size_t>(bound - bounds_.begin())];
  sum_ += value;
}

void MetricsFile::start(std::string_view name, std::string_view help, std::string_view type) {
  if (std::ranges::find(families_, name, &Family::name) != families_.end()) return;
  families_.push_back({std::string(name), fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type)});
}

void MetricsFile::sample(std::string_view family, std::string_view name, double value, std::string_view labels) {
  const auto found = std::ranges::find(families_, family, &Family::name);
  found->text += fmt::format("{}{{{}}} {}\n", name, labels, prometheus_number(value));
}

void MetricsFile::gauge(std::string_view name, std::string_view help, double value, std::string_view labels) {
  start(name, help, "gauge");
  sample(name, name, value, labels);
}

void MetricsFile::counter(std::string_view name, std::string_view help, double value, std::string_view labels) {
  start(name, help, "counter");
  sample(name, name, value, labels);
}

void MetricsFile::histogram(std::string_view name, std::string_view help, const Histogram& values,
                            std::string_view labels) {
  start(name, help, "histogram");
  const auto labelled = [&](double bound) {
    return fmt::format("{}{}{}", labels, labels.empty() ? "" : ",", label("le", prometheus_number(bound)));
  };
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < values.counts_.size(); ++i) {
    count += values.counts_[i];
    const double bound = i < values.bounds_.size() ? values.bounds_[i] : std::numeric_limits<double>::infinity();
    sample(name, fmt::format("{}_bucket", name), static_cast<double>(count), labelled(bound));
  }
  sample(name, fmt::format("{}_sum", name), values.sum_, labels);
  sample(name, fmt::format("{}_count", name), static_cast<double>(count), labels);
}

void MetricsFile::write(const std::string& path) const {
  std::string text;
  for (const Family& family : families_) text += family.text;
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  ::unlink(temporary.c_str());
  int failure = write_new_file(temporary, text);
  if (failure == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) failure = errno;
  if (failure == 0) return;
  ::unlink(temporary.c_str());
  throw Error(failure == ENOSPC ? Errc::no_space : Errc::io,
              fmt::format("cannot write metrics file '{}': {}", path, std::strerror(failure)), failure);
}

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
// A Prometheus text file for node_exporter's textfile collector, replaced as a whole: a scrape sees the old one or
// the new one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::cli {

/// How often values were at most so large.
class Histogram {
 public:
  /// `bounds` grow; the last bucket, without a bound, is added.
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void add(double value);

 private:
  friend class MetricsFile;
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;  ///< of values in each bucket alone
  double sum_ = 0;
};

class MetricsFile {
 public:
  /// Adds one sample of a gauge; samples of one name end up together. `labels` stands between the braces.
  void gauge(std::string_view name, std::string_view help, double value, std::string_view labels);

  /// The same for a number that only grows while the process lives.
  void counter(std::string_view name, std::string_view help, double value, std::string_view labels);
  void histogram(std::string_view name, std::string_view help, const Histogram& values, std::string_view labels);

  /// Writes beside `path` and renames. Throws Errc::io or no_space.
  void write(const std::string& path) const;

  /// `name="value"`, escaped.
  [[nodiscard]] static std::string label(std::string_view name, std::string_view value);

 private:
  struct Family {
    std::string name;
    std::string text;
  };
  void start(std::string_view name, std::string_view help, std::string_view type);
  void sample(std::string_view family, std::string_view name, double value, std::string_view labels);

  std::vector<Family> families_;
};

}  // namespace ckpt::cli

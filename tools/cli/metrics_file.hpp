// SPDX-License-Identifier: Apache-2.0
// A Prometheus text file for node_exporter's textfile collector, replaced as a whole: a scrape sees the old one or
// the new one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ckpt::cli {

class MetricsFile {
 public:
  /// Adds one sample of a gauge; samples of one name end up together. `labels` stands between the braces.
  void gauge(std::string_view name, std::string_view help, double value, std::string_view labels);

  /// Writes beside `path` and renames. Throws Errc::io or no_space.
  void write(const std::string& path) const;

  /// `name="value"`, escaped.
  [[nodiscard]] static std::string label(std::string_view name, std::string_view value);

 private:
  struct Family {
    std::string name;
    std::string text;
  };
  std::vector<Family> families_;
};

}  // namespace ckpt::cli

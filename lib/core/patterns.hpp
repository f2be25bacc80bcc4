// SPDX-License-Identifier: Apache-2.0
// Patterns as all tools take them: an exact name first, else fnmatch over the whole name.
#pragma once

#include <string>
#include <vector>

namespace ckpt {

/// Which names a user has chosen. An empty list chooses all. Not thread-safe.
class PatternList {
 public:
  explicit PatternList(const std::vector<std::string>& patterns);

  /// True if it matters that learn() sees all names first: a pattern has characters that are special to fnmatch.
  [[nodiscard]] bool has_wildcards() const;
  /// A pattern that is exactly this name means this name alone from now on.
  void learn(const std::string& name);

  /// Remembers which patterns have matched.
  [[nodiscard]] bool matches(const std::string& name);
  /// The first pattern that has matched nothing, or null.
  [[nodiscard]] const std::string* unmatched() const;

 private:
  struct Pattern {
    std::string text;
    bool exact = false;
    bool hit = false;
  };
  std::vector<Pattern> patterns_;
};

}  // namespace ckpt

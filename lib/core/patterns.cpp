// SPDX-License-Identifier: Apache-2.0
#include "core/patterns.hpp"

#include <fnmatch.h>
#include <algorithm>

namespace ckpt {

PatternList::PatternList(const std::vector<std::string>& patterns) {
  for (const std::string& text : patterns) patterns_.push_back({.text = text});
}

bool PatternList::has_wildcards() const {
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [](const Pattern& p) { return p.text.find_first_of("*?[\\") != std::string::npos; });
}

void PatternList::learn(const std::string& name) {
  for (Pattern& pattern : patterns_) {
    if (pattern.text == name) pattern.exact = true;
  }
}

bool PatternList::matches(const std::string& name) {
  bool any = patterns_.empty();
  for (Pattern& pattern : patterns_) {
    const bool match =
        pattern.text == name || (!pattern.exact && ::fnmatch(pattern.text.c_str(), name.c_str(), 0) == 0);
    pattern.hit = pattern.hit || match;
    any = any || match;
  }
  return any;
}

const std::string* PatternList::unmatched() const {
  const auto it = std::find_if(patterns_.begin(), patterns_.end(), [](const Pattern& p) { return !p.hit; });
  return it == patterns_.end() ? nullptr : &it->text;
}

}  // namespace ckpt

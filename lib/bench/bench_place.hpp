// SPDX-License-Identifier: Apache-2.0
// The directory that a bench works in: made by it, marked as such, and emptied of nothing else.
#pragma once

#include "os/fd.hpp"

#include <ckpt/monitor.hpp>

#include <string>

namespace ckpt::measure {

class BenchPlace {
 public:
  /// Makes the directory, or clears one that an earlier bench made. Throws exists (it's there, and none made it), busy.
  BenchPlace(std::string path, bool keep, Monitor& monitor);
  BenchPlace(const BenchPlace&) = delete;
  BenchPlace& operator=(const BenchPlace&) = delete;
  /// Without keep what a bench makes goes, and the directory if nothing else is in it.
  ~BenchPlace();

  [[nodiscard]] const std::string& path() const { return path_; }
  /// One of the names that clear() knows.
  [[nodiscard]] std::string sub(const std::string& name) const;

 private:
  void clear();

  std::string path_;
  bool keep_;
  Monitor& monitor_;
  os::Fd lock_;
};

}  // namespace ckpt::measure

// SPDX-License-Identifier: Apache-2.0
#include "os/temporary_directory.hpp"

#include "os/fd.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace ckpt::os {

TemporaryDirectory::TemporaryDirectory(const std::string& parent) : path_(parent + "/ckpt.XXXXXX") {
  if (::mkdtemp(path_.data()) == nullptr) throw_errno(errno, "cannot make a temporary directory in '" + parent + "'");
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;  // a destructor has no one to tell
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ckpt::os

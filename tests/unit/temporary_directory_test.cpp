// SPDX-License-Identifier: Apache-2.0
#include "os/temporary_directory.hpp"
#include "scratch.hpp"

#include <doctest/doctest.h>
#include <filesystem>
#include <string>

using ckpt::os::TemporaryDirectory;
using unit_test::Scratch;

TEST_SUITE("temporary directory") {
  TEST_CASE("it goes with its object, what is in it too") {
    const Scratch scratch;
    std::string path;
    {
      const TemporaryDirectory directory(scratch / "");
      path = directory.path();
      std::filesystem::create_directories(path + "/a/b");
      CHECK((std::filesystem::status(path).permissions() & std::filesystem::perms::others_all) ==
            std::filesystem::perms::none);
    }
    CHECK_FALSE(std::filesystem::exists(path));
  }

  TEST_CASE("one that a dead process left is removed, one of a living one is not") {
    const Scratch scratch;
    std::filesystem::create_directories(scratch / "ckpt-tmp.dead00/a");
    std::filesystem::create_directories(scratch / "another's");
    const TemporaryDirectory living(scratch / "");
    const TemporaryDirectory next(scratch / "");
    CHECK_FALSE(std::filesystem::exists(scratch / "ckpt-tmp.dead00"));
    CHECK(std::filesystem::exists(living.path()));
    CHECK(std::filesystem::exists(scratch / "another's"));
  }
}

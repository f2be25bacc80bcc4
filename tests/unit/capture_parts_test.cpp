// SPDX-License-Identifier: Apache-2.0
// The parts that frozen memory is made of.
#include <doctest/doctest.h>

#include "capture/aside_memory.hpp"
#include "capture/available_memory.hpp"
#include "capture/frozen_layout.hpp"
#include "capture/memory_map.hpp"
#include "capture/owner_memory.hpp"
#include "capture_support.hpp"
#include "scratch.hpp"

#include <ckpt/error.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>

using namespace ckpt;
using namespace ckpt::capture;
using namespace capture_test;

namespace {

void put(const std::string& path, const std::string& text) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_SUITE("capture") {
  TEST_CASE("capture: lines of the memory map") {
    const auto kind = [](const char* line) { return parse_mapping(line).kind; };
    const Mapping heap =
        parse_mapping("55d0c8a00000-55d0c8a21000 rw-p 00000000 00:00 0                          [heap]");
    CHECK(heap.at.begin == 0x55d0c8a00000);
    CHECK(heap.at.end == 0x55d0c8a21000);
    CHECK(heap.kind == MappingKind::anonymous);
    CHECK(kind("7f0000000000-7f0000001000 rw-p 00000000 00:00 0 ") == MappingKind::anonymous);
    CHECK(kind("7f0000000000-7f0000001000 rw-p 00000000 00:00 0      [anon:torch]") == MappingKind::anonymous);
    CHECK(kind("7f0000000000-7f0000001000 rw-s 00000000 00:01 12     /dev/zero (deleted)") == MappingKind::shared);
    CHECK(kind("7f0000000000-7f0000001000 rw-p 00000000 00:0f 12     /anon_hugepage (deleted)") == MappingKind::file);
    CHECK(kind("7f0000000000-7f0000001000 rw-p 00000000 fe:00 12     /a file") == MappingKind::file);
    CHECK(kind("7f0000000000-7f0000001000 r--p 00000000 00:00 0 ") == MappingKind::file);
    CHECK(kind("7f0000000000-7f0000001000 ---p 00000000 00:00 0 ") == MappingKind::unreadable);
    CHECK_THROWS_AS((void)parse_mapping("nonsense"), Error);
    CHECK_THROWS_AS((void)parse_mapping(""), Error);
  }

  TEST_CASE("capture: the own memory map has no gaps where there's memory") {
    const Mapped memory(mib);
    std::uintptr_t before = 0;
    bool is_found = false;
    for (const Mapping& mapping : read_memory_map()) {
      CHECK(mapping.at.begin >= before);
      before = mapping.at.end;
      const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
      if (mapping.at.begin <= address && address < mapping.at.end) is_found = mapping.kind == MappingKind::anonymous;
    }
    CHECK(is_found);
  }

  TEST_CASE("capture: memory that isn't there is no fault") {
    Mapped memory(64 * kib);
    memory.fill(1);
    std::vector<std::byte> buffer(64 * kib);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    CHECK(read_own_memory(address, buffer));
    CHECK(std::memcmp(buffer.data(), memory.data(), buffer.size()) == 0);
    (void)::munmap(memory.data() + 32 * kib, 32 * kib);
    CHECK_FALSE(read_own_memory(address, buffer));
    CHECK(read_own_memory(address, {buffer.data(), 32 * kib}));
    CHECK(read_own_memory(0, {}));
    CHECK_FALSE(read_own_memory(0, {buffer.data(), 1}));
  }

  TEST_CASE("capture: memory is read where a sandbox forbids process_vm_readv") {
    Mapped memory(64 * kib);
    memory.fill(1);
    std::vector<std::byte> buffer(64 * kib);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::array<sock_filter, 4> code = {
          sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
          sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
          sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
          sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      };
      const sock_fprog program{.len = code.size(), .filter = code.data()};
      if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) ::_exit(3);
      if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) ::_exit(3);
      if (!read_own_memory(address, buffer)) ::_exit(1);
      if (std::memcmp(buffer.data(), memory.data(), buffer.size()) != 0) ::_exit(1);
      (void)::munmap(memory.data() + 32 * kib, 32 * kib);
      ::_exit(read_own_memory(address, buffer) ? 2 : 0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    if (status == 3 << 8U) {
      MESSAGE("skipped: no seccomp here");
    } else {
      CHECK(status == 0);
    }
  }

  TEST_CASE("capture: what the control groups leave") {
    const unit_test::Scratch root;
    CHECK(available_memory(root.path()) == 0);
    put(root / "proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    8000 kB\n");
    CHECK(available_memory(root.path()) == 8000 * 1024);

    put(root / "proc/self/cgroup", "0::/a/b\n");
    put(root / "sys/fs/cgroup/a/b/memory.max", "max\n");
    put(root / "sys/fs/cgroup/a/b/memory.current", "1000\n");
    CHECK(available_memory(root.path()) == 8000 * 1024);
    put(root / "sys/fs/cgroup/a/memory.max", "5000000\n");
    put(root / "sys/fs/cgroup/a/memory.current", "3000000\n");
    CHECK(available_memory(root.path()) == 2000000);
    put(root / "sys/fs/cgroup/a/memory.stat", "anon 7\ninactive_file 500000\n");
    CHECK(available_memory(root.path()) == 2500000);
    put(root / "sys/fs/cgroup/a/memory.max", "1\n");
    CHECK(available_memory(root.path()) == 0);

    put(root / "proc/self/cgroup", "7:cpu,memory:/docker/x\n3:pids:/\nodd\n");
    put(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "4000\n");  // in a container: at the root
    put(root / "sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
    CHECK(available_memory(root.path()) == 3000);
    CHECK(default_memory(1) > 0);
    CHECK(default_memory(0) >= default_memory(4));
  }

  TEST_CASE("capture: what is set aside keeps to its budget, whatever the sizes") {
    for (const bool keep : {false, true}) {
      AsideMemory aside(3 * cell_size, keep);
      std::vector<std::pair<std::byte*, std::uint64_t>> taken;
      for (const std::uint64_t size : {cell_size, std::uint64_t{1}, cell_size, cell_size - 1, std::uint64_t{5000}}) {
        std::byte* memory = aside.take(size);
        if (memory != nullptr) {
          memory[size - 1] = std::byte{1};
          taken.emplace_back(memory, size);
        }
        CHECK(aside.used() <= aside.budget());
      }
      CHECK(taken.size() == 4);
      CHECK(aside.take(cell_size) == nullptr);
      CHECK_FALSE(aside.has_room(cell_size));
      for (const auto& [memory, size] : taken) aside.give_back(memory, size);
      CHECK(aside.used() == 0);
      // Slots that are ready give way to small ones.
      aside.prepare(3 * cell_size);
      std::byte* small = aside.take(4096);
      CHECK(small != nullptr);
      std::byte* one = aside.take(cell_size);
      std::byte* two = aside.take(cell_size);
      CHECK(one != nullptr);
      CHECK(two != nullptr);
      CHECK(aside.take(cell_size) == nullptr);
      for (std::byte* slot : {one, two}) aside.give_back(slot, cell_size);
      aside.give_back(small, 4096);
    }
  }

  TEST_CASE("capture: ranges are cut into chunks that share no page") {
    Mapped memory(16 * mib);
    const std::vector<MemoryRange> ranges = {
        {.begin = memory.data() + 5, .size = 5 * mib},       {.begin = memory.data() + 5 + 5 * mib, .size = mib},
        {.begin = memory.data() + mib, .size = 8 * mib + 1}, {.begin = memory.data() + 12 * mib, .size = 100},
        {.begin = memory.data() + 13 * mib, .size = mib},
    };
    const FrozenLayout layout = lay_out(ranges, "");
    std::uintptr_t before = 0;
    std::uint64_t total = 0;
    for (const Interval& chunk : layout.protected_chunks) {
      CHECK(chunk.begin >= before);
      CHECK(chunk.begin < chunk.end);
      CHECK(chunk.begin / cell_size == (chunk.end - 1) / cell_size);
      CHECK(page_down(chunk.begin) == chunk.begin);
      CHECK(page_down(chunk.end) == chunk.end);
      before = chunk.end;
      total += chunk.size();
    }
    CHECK(total < layout.protected_bytes);  // the pages of two ranges once
    CHECK(layout.watched.size() == 1);
    std::uint64_t bytes = 0;
    for (const MemoryRange& range : ranges) bytes += range.size;
    CHECK(layout.protected_bytes + layout.copied_bytes == bytes);
    const FrozenLayout copied = lay_out(ranges, "because");
    CHECK(copied.protected_chunks.empty());
    CHECK(copied.copied_bytes == bytes);
    CHECK(copied.why_copied == "because");
  }
}

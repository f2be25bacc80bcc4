// SPDX-License-Identifier: Apache-2.0
#include "bench/bench_machine.hpp"

#include "bench/bench_loop.hpp"
#include "capture/freezer.hpp"
#include "core/digest.hpp"
#include "core/stop.hpp"
#include "os/adaptive_reader.hpp"
#include "os/aligned_buffer.hpp"
#include "os/direct_writer.hpp"
#include "os/fd.hpp"
#include "os/temporary_file.hpp"

#include <fmt/format.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <span>
#include <thread>
#include <vector>

namespace ckpt::measure {
namespace {

constexpr std::uint64_t piece = std::uint64_t{4} << 20U;
constexpr std::uint64_t most_memory = std::uint64_t{256} << 20U;
constexpr std::uint64_t most_device = std::uint64_t{1} << 30U;
constexpr std::size_t readers = 4;  ///< a device that is asked for one piece at a time idles
constexpr std::string_view file_prefix = "ckpt-bench.";

/// The best of three: the first one pays for pages that are new.
template <class Work>
double best_rate(std::uint64_t bytes, Work&& work) {
  double least = 1e9;
  for (int round = 0; round < 3; ++round) {
    const auto start = Clock::now();
    work();
    least = std::min(least, seconds_since(start));
  }
  return static_cast<double>(bytes) / std::max(least, 1e-9);
}

struct FileSystem {
  std::uint64_t magic;
  const char* name;
  bool is_memory;
  bool is_network;
};

/// statfs(2), and linux/magic.h.
constexpr std::array<FileSystem, 18> file_systems = {{
    {0xef53, "ext4", false, false},
    {0x58465342, "xfs", false, false},
    {0x9123683e, "btrfs", false, false},
    {0xf2f52010, "f2fs", false, false},
    {0x2fc12fc1, "zfs", false, false},
    {0x794c7630, "overlay", false, false},
    {0x01021994, "tmpfs", true, false},
    {0x858458f6, "ramfs", true, false},
    {0x6969, "nfs", false, true},
    {0xff534d42, "cifs", false, true},
    {0xfe534d42, "smb2", false, true},
    {0x0bd00bd0, "lustre", false, true},
    {0x19830326, "beegfs", false, true},
    {0x47504653, "gpfs", false, true},
    {0x00c36400, "ceph", false, true},
    {0x01021997, "9p", false, true},
    {0x65735546, "fuse", false, true},
    {0x6a656a63, "virtiofs", false, false},
}};

void name_file_system(BenchDevice& device) {
  struct statfs status {};
  if (::statfs(device.path.c_str(), &status) != 0) os::throw_errno(errno, "cannot look at '" + device.path + "'");
  const std::uint64_t magic = static_cast<std::uint32_t>(status.f_type);
  const auto* known = std::find_if(file_systems.begin(), file_systems.end(),
                                   [&](const FileSystem& each) { return each.magic == magic; });
  device.kind = known == file_systems.end() ? fmt::format("{:x}", magic) : known->name;
  device.is_memory = known != file_systems.end() && known->is_memory;
  device.is_network = known != file_systems.end() && known->is_network;
}

void read_share(const os::AdaptiveReader& reader, std::size_t part, std::exception_ptr& failure) {
  try {
    os::AlignedBuffer buffer(piece);
    for (std::uint64_t at = part * piece; at < reader.size(); at += readers * piece)
      (void)reader.read(at, piece, buffer);
  } catch (...) {
    failure = std::current_exception();
  }
}

double read_rate(const std::string& path) {
  const os::AdaptiveReader reader(path, os::CacheUse::bypass);
  std::array<std::exception_ptr, readers> failures;
  const auto start = Clock::now();
  {
    std::vector<std::jthread> threads;
    for (std::size_t part = 0; part < readers; ++part)
      threads.emplace_back([&, part] { read_share(reader, part, failures[part]); });
  }
  const double seconds = seconds_since(start);
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return static_cast<double>(reader.size()) / std::max(seconds, 1e-9);
}

}  // namespace

BenchMachine measure_machine(std::uint64_t bytes) {
  BenchMachine machine;
  machine.cores = std::max(1U, std::thread::hardware_concurrency());
  const std::uint64_t size = std::min(bytes, most_memory);
  os::AlignedBuffer from(size);
  os::AlignedBuffer to(size);
  std::memset(from.data(), 1, size);
  machine.memcpy_rate = best_rate(size, [&] {
    std::memcpy(to.data(), from.data(), size);
    asm volatile("" : : "r"(to.data()) : "memory");
  });
  const std::span<const std::byte> all(from.data(), size);
  machine.hash_rate = best_rate(size, [&] {
    const Digest digest = xxh3_128(all);
    asm volatile("" : : "r"(&digest) : "memory");
  });
  machine.why_not_protect = capture::why_not_protect();
  machine.can_protect = machine.why_not_protect.empty();
  return machine;
}

BenchDevice measure_device(const std::string& directory, std::uint64_t bytes, const Monitor& monitor) {
  BenchDevice device{.path = directory, .kind = {}};
  name_file_system(device);
  device.free_bytes = os::free_space(directory);
  os::remove_dead_temporaries(directory, file_prefix);
  const std::uint64_t size = std::min(bytes, most_device);
  // Neither constant nor compressible: some devices are faster with that.
  std::vector<std::uint64_t> words(piece / sizeof(std::uint64_t));
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = (i + 1) * 0x9e3779b97f4a7c15U;
  const std::span<const std::byte> data = std::as_bytes(std::span(words));

  const os::TemporaryFile file(directory, 0600, file_prefix);
  const auto start = Clock::now();
  {
    os::DirectWriter writer(file.share(), file.path(), [](std::span<const std::byte>) {});
    for (std::uint64_t at = 0; at < size; at += piece) {
      require_no_stop(monitor);
      writer.append(data.first(std::min(piece, size - at)));
    }
    (void)writer.finish();
  }
  device.write_rate = static_cast<double>(size) / std::max(seconds_since(start), 1e-9);
  require_no_stop(monitor);
  device.read_rate = read_rate(file.path());
  return device;
}

}  // namespace ckpt::measure

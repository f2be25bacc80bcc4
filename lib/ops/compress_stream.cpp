// SPDX-License-Identifier: Apache-2.0
// Encoding one container anew between two streams. The index stands at a container's end, so the input is kept in a
// file without a name; and the output too, so that no half of it is ever seen.
#include <ckpt/compress.hpp>

#include "core/stop.hpp"
#include "format/container_reader.hpp"
#include "ops/check_container.hpp"
#include "ops/shard_reencoder.hpp"
#include "ops/stdin_spool.hpp"
#include "os/fd.hpp"

#include <ckpt/error.hpp>

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace ckpt {
namespace {

constexpr const char* input_name = "standard input";

/// The spool's path means nothing to the reader of a message.
[[noreturn]] void rethrow_named(const Error& error, const std::string& path) {
  std::string text = error.what();
  const std::string quoted = "'" + path + "'";
  for (std::size_t at = text.find(quoted); at != std::string::npos; at = text.find(quoted)) {
    text.replace(at, quoted.size(), input_name);
  }
  throw Error(error.code(), text, error.system_errno()).with_hint(error.hint());
}

void copy_to(const std::string& path, int output_fd, Monitor& monitor) {
  const os::Fd from = os::open(path, O_RDONLY);
  std::vector<std::byte> buffer(std::size_t{1} << 20U);
  std::uint64_t offset = 0;
  while (true) {
    require_no_stop(monitor);
    const std::size_t size = os::read_at(from, offset, buffer, "the new container");
    if (size == 0) return;
    offset += size;
    for (std::size_t done = 0; done < size;) {
      const ssize_t n = ::write(output_fd, buffer.data() + done, size - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) os::throw_errno(errno, "cannot write to standard output");
      done += static_cast<std::size_t>(n);
    }
  }
}

void require_self_contained(const format::ContainerReader& container) {
  for (const format::BlockRecord& block : container.index().blocks) {
    if (!block.base || block.base->checkpoint == format::own_shard) continue;
    const std::uint64_t step = container.catalog().bases.at(block.base->checkpoint).step;
    std::string why = input_name;
    why += " needs other containers, of step ";
    why += std::to_string(step);
    why += " among them, and can't be encoded anew alone";
    throw Error(Errc::unsupported, why)
        .with_hint("ckpt-compress --rebase STORE@STEP makes it self-contained in its store");
  }
}

}  // namespace

CompressStreamReport compress_stream(const CompressStreamOptions& options, Monitor& monitor) {
  if (options.encode == Encode::raw) throw Error(Errc::invalid_argument, "a container isn't encoded to raw bytes");
  const ops::StdinSpool spool(options.input_fd, options.scratch, monitor);
  try {
    const auto old = std::make_shared<const format::ContainerReader>(spool.path());
    require_self_contained(*old);
    const auto problems = ops::check_sums(old->file(), old->footer(), {.jobs = options.jobs}, monitor);
    if (!problems.empty()) throw Error(Errc::damaged, problems.front().detail);

    ops::ReencodePlan plan;
    plan.settings.effort = options.encode == Encode::best ? codec::Effort::best : codec::Effort::fast;
    plan.settings.level = options.level;
    plan.settings.max_depth = static_cast<std::uint8_t>(options.max_chain);
    ops::ShardReencoder reencoder(old, {}, plan, nullptr, monitor);
    const std::string name = "the new container";
    const auto finished = reencoder.write(ops::open_nameless(options.scratch), name, options.jobs);

    CompressStreamReport report{.stored_before = old->footer().file_size, .stored_after = finished.size};
    const bool smaller = finished.size < report.stored_before;
    if (!smaller) report.stored_after = report.stored_before;
    copy_to(smaller ? "/proc/self/fd/" + std::to_string(finished.file.get()) : spool.path(), options.output_fd,
            monitor);
    return report;
  } catch (const Error& error) {
    rethrow_named(error, spool.path());
  }
}

}  // namespace ckpt

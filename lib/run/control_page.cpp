// SPDX-License-Identifier: Apache-2.0
#include "run/control_page.hpp"

#include <ckpt/address.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace ckpt::run {
namespace {

constexpr std::uint64_t magic = 0x316e7572'74706b63;  // "ckptrun1"

/// Every access is sequentially consistent: that one side writes before it looks is all that this rests on.
std::uint64_t load(std::uint64_t& word) { return std::atomic_ref(word).load(); }
void store(std::uint64_t& word, std::uint64_t value) { std::atomic_ref(word).store(value); }
static_assert(std::atomic_ref<std::uint64_t>::is_always_lock_free);

/// A rank that finishes no step while another goes on by so many isn't waited for: it has no part in the steps.
constexpr std::uint64_t most_behind = 16;

}  // namespace

struct alignas(64) ControlWords {
  std::uint64_t magic;
  std::uint64_t ranks;
  std::uint64_t request;   // of what is proposed
  std::uint64_t proposed;  // from which step on, plus one
  std::uint64_t agreed;    // the same, once it's settled
};

/// A line of its own for each, so that ranks don't slow one another down.
struct alignas(64) RankWords {
  std::uint64_t joined;
  std::uint64_t finished;  // plus one
  std::uint64_t answered;  // what was agreed when this rank took it
};

namespace {

std::size_t size_for(std::uint32_t ranks) { return sizeof(ControlWords) + std::size_t{ranks} * sizeof(RankWords); }

os::Fd make_file(std::uint32_t ranks) {
  const int fd = ::memfd_create("ckpt-run-control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) os::throw_errno(errno, "cannot make shared memory");
  os::Fd file(fd);
  if (::ftruncate(fd, static_cast<off_t>(size_for(ranks))) != 0) os::throw_errno(errno, "cannot size shared memory");
  // A rank that cut it would end whoever looks at what is missing then.
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    os::throw_errno(errno, "cannot seal shared memory");
  return file;
}

ControlMapping open_mapping(const std::string& path) {
  const os::Fd file = os::open(path, O_RDWR);
  const auto size = static_cast<std::size_t>(os::stat_of(file, path).st_size);
  if (size < sizeof(ControlWords)) throw Error(Errc::malformed, "'" + path + "' isn't shared memory of ckpt-run");
  ControlMapping mapping(file, size, path);
  const std::uint64_t ranks = load(mapping.words().ranks);
  if (load(mapping.words().magic) != magic || ranks > UINT32_MAX || size < size_for(static_cast<std::uint32_t>(ranks)))
    throw Error(Errc::malformed, "'" + path + "' isn't shared memory of ckpt-run");
  return mapping;
}

}  // namespace

ControlMapping::ControlMapping(const os::Fd& file, std::size_t size, const std::string& name)
    : data_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0)), size_(size) {
  if (data_ == MAP_FAILED) os::throw_errno(errno, "cannot map '" + name + "'");
}

ControlMapping::ControlMapping(ControlMapping&& other) noexcept
    : data_(std::exchange(other.data_, MAP_FAILED)), size_(other.size_) {}

ControlMapping::~ControlMapping() {
  if (data_ != MAP_FAILED) ::munmap(data_, size_);
}

ControlWords& ControlMapping::words() const { return *static_cast<ControlWords*>(data_); }

RankWords& ControlMapping::rank(std::uint32_t local_rank) const {
  auto* const ranks = reinterpret_cast<RankWords*>(static_cast<std::byte*>(data_) + sizeof(ControlWords));
  return ranks[local_rank];
}

ControlPage::ControlPage(std::uint32_t ranks)
    : ranks_(ranks),
      file_(make_file(ranks)),
      mapping_(file_, size_for(ranks), "shared memory"),
      seen_(ranks),
      has_left_(ranks) {
  store(mapping_.words().ranks, ranks);
  store(mapping_.words().magic, magic);
}

std::string ControlPage::path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), file_.get()); }

bool ControlPage::has_joined(std::uint32_t local_rank) const { return load(mapping_.rank(local_rank).joined) != 0; }

bool ControlPage::has_any_joined() const {
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    if (has_joined(rank)) return true;
  }
  return false;
}

std::uint64_t ControlPage::finished(std::uint32_t local_rank) const {
  const std::uint64_t told = load(mapping_.rank(local_rank).finished);
  // What no store has room for isn't a step.
  return told <= max_step + 1 ? told : 0;
}

std::optional<std::uint64_t> ControlPage::last_step(std::uint32_t local_rank) const {
  const std::uint64_t told = finished(local_rank);
  if (told == 0) return std::nullopt;
  return told - 1;
}

std::uint64_t ControlPage::next_step() const {
  std::uint64_t next = 0;
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) next = std::max(next, finished(rank));
  return next;
}

bool ControlPage::propose(Request request, std::uint64_t step) {
  ControlWords& words = mapping_.words();
  // Whoever still takes the one before, takes all of it.
  store(words.agreed, 0);
  store(words.request, static_cast<std::uint64_t>(request));
  proposed_ = step + 1;
  is_agreed_ = false;
  store(words.proposed, proposed_);
  return next_step() <= step;
}

void ControlPage::agree() {
  if (proposed_ == 0 || std::exchange(is_agreed_, true)) return;
  store(mapping_.words().agreed, proposed_);
}

bool ControlPage::is_awaited(std::uint32_t local_rank) {
  if (!has_joined(local_rank) || has_left_[local_rank] || load(mapping_.rank(local_rank).answered) == proposed_)
    return false;
  const std::uint64_t next = next_step();
  Seen& seen = seen_[local_rank];
  if (const std::uint64_t now = finished(local_rank); now != seen.finished) seen = {.finished = now, .next = next};
  return next < std::max(seen.next, proposed_) + most_behind;
}

bool ControlPage::is_answered() {
  if (proposed_ == 0) return true;
  if (!is_agreed_) return false;
  for (std::uint32_t rank = 0; rank < ranks_; ++rank) {
    if (is_awaited(rank)) return false;
  }
  // Who joins later is not asked for what is over.
  proposed_ = 0;
  store(mapping_.words().proposed, 0);
  return true;
}

RankPage::RankPage(const std::string& path, std::uint32_t local_rank) : mapping_(open_mapping(path)), own_(nullptr) {
  if (local_rank >= load(mapping_.words().ranks))
    throw Error(Errc::invalid_argument, fmt::format("there is no local rank {} under this ckpt-run", local_rank));
  own_ = &mapping_.rank(local_rank);
  store(own_->joined, 1);
}

Request RankPage::finish(std::uint64_t step) {
  ControlWords& words = mapping_.words();
  store(own_->finished, step + 1);
  for (auto pause = std::chrono::microseconds(10);; pause = std::min(2 * pause, std::chrono::microseconds(1000))) {
    const std::uint64_t proposed = load(words.proposed);
    if (proposed == 0 || proposed == load(own_->answered) || step + 1 < proposed) return Request::none;
    // Read first: once the next one is proposed, this one isn't agreed any more.
    const auto request = static_cast<Request>(load(words.request));
    if (load(words.agreed) == proposed) {
      store(own_->answered, proposed);
      return request;
    }
    // The supervisor settles it at once, or it is dead, and then so is this process.
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace ckpt::run

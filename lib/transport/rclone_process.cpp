// SPDX-License-Identifier: Apache-2.0
#include "transport/rclone_process.hpp"

#include "core/stop.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

namespace ckpt::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_words = 4096;
constexpr std::size_t longest_listed = 1U << 16U;
constexpr std::size_t longest_line = 400;
/// rclone tries each step so often before it gives up.
constexpr int tries = 3;
/// A remote that hashes, assembles or copies what it holds does so at least this fast.
constexpr std::uint64_t bytes_per_second = 8U << 20U;
constexpr auto poll_turn = std::chrono::milliseconds(200);

/// rclone's exit status, from its manual.
enum class RcloneExit { directory_not_found = 3, file_not_found = 4, temporary = 5 };

/// Some failures of a connection end rclone with a status that tells nothing; its words are those of Go's library.
constexpr std::array<std::string_view, 12> words_of_networks = {
    "dial tcp",       "connection refused", "connection reset", "no such host",
    "i/o timeout",    "broken pipe",        "TLS handshake",    "unreachable",
    "unexpected EOF", "Client.Timeout",     "connection lost",  "deadline exceeded"};
constexpr std::array<std::string_view, 4> words_of_full_disks = {"no space left", "quota exceeded",
                                                                 "Insufficient Storage", "storageQuotaExceeded"};

template <std::size_t Count>
bool has_any(std::string_view text, const std::array<std::string_view, Count>& words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

std::vector<std::string> command_line(const std::vector<std::string>& command, const std::vector<std::string>& operands,
                                      std::chrono::milliseconds patience) {
  const std::string limit = std::to_string(patience.count()) + "ms";
  std::vector<std::string> line = {"rclone"};
  line.insert(line.end(), command.begin(), command.end());
  // One try of the whole: what fails is tried again by who runs the sync. No question to the terminal.
  for (const char* flag : {"--retries=1", "--ask-password=false", "--stats=0", "--progress=false", "--log-file="})
    line.emplace_back(flag);
  line.push_back("--low-level-retries=" + std::to_string(tries));
  line.push_back("--timeout=" + limit);
  line.push_back("--contimeout=" + limit);
  line.emplace_back("--");
  line.insert(line.end(), operands.begin(), operands.end());
  return line;
}

ChildProcess start(const std::vector<std::string>& command, const std::vector<std::string>& operands,
                   std::chrono::milliseconds patience) {
  try {
    return ChildProcess(command_line(command, operands, patience), ErrorStream::own);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    throw Error(Errc::unsupported, "rclone isn't installed")
        .with_hint("rclone: addresses are reached through the program of that name, from the package 'rclone'");
  }
}

/// Without the time that rclone writes before it, and nothing that a terminal would obey.
std::string plain(std::string_view line) {
  constexpr std::string_view stamp = "2006/01/02 15:04:05 ";
  const bool is_stamped = line.size() > stamp.size() && line[4] == '/' && line[7] == '/' && line[13] == ':';
  if (is_stamped) line.remove_prefix(stamp.size());
  std::string text(line.substr(0, longest_line));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }, '?');
  return text;
}

}  // namespace

Error rclone_error(int wait_status, std::string_view last_line, const std::string& what) {
  const std::string message = what + ": " + (last_line.empty() ? "it says nothing" : std::string(last_line));
  if (WIFSIGNALED(wait_status))
    return {Errc::busy, what + " was ended by signal " + std::to_string(WTERMSIG(wait_status))};
  const auto exit = static_cast<RcloneExit>(WEXITSTATUS(wait_status));
  if (exit == RcloneExit::directory_not_found || exit == RcloneExit::file_not_found) return {Errc::not_found, message};
  if (has_any(last_line, words_of_full_disks)) return {Errc::no_space, message};
  if (exit == RcloneExit::temporary || has_any(last_line, words_of_networks)) return {Errc::busy, message};
  return {Errc::io, message};
}

RcloneProcess::RcloneProcess(const std::vector<std::string>& command, const std::vector<std::string>& operands,
                             const RcloneLimits& limits, std::uint64_t bytes)
    : what_("rclone " + command.front() + " '" + operands.front() + "'"),
      monitor_(limits.monitor),
      // rclone ends an idle connection itself: this is for when it doesn't.
      patience_(limits.patience * (tries + 1) + std::chrono::seconds(bytes / bytes_per_second)),
      child_(start(command, operands, limits.patience)),
      input_(child_.take_input()),
      output_(child_.take_output()),
      errors_(child_.take_errors()) {
  for (const os::Fd* fd : {&input_, &output_, &errors_}) os::set_nonblocking(*fd, "a pipe");
}

RcloneProcess::~RcloneProcess() {
  // Before its input ends, which it would take for the end of an object.
  if (!finished_) child_.terminate();
}

void RcloneProcess::collect_errors() {
  std::array<char, most_words> piece{};
  while (errors_.valid()) {
    const ssize_t n = ::read(errors_.get(), piece.data(), piece.size());
    if (n > 0) {
      words_.append(piece.data(), static_cast<std::size_t>(n));
      if (words_.size() > most_words) words_.erase(0, words_.size() - most_words);
    } else if (n == 0) {
      errors_ = {};
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      os::throw_errno(errno, "cannot read what rclone says");
    }
  }
}

void RcloneProcess::wait_for(int fd, short events) {
  const auto deadline = Clock::now() + patience_;
  while (true) {
    require_no_stop(monitor_);
    if (Clock::now() > deadline) throw Error(Errc::busy, what_ + " is silent");
    std::array<pollfd, 2> items = {{{.fd = fd, .events = events, .revents = 0},
                                    {.fd = errors_.valid() ? errors_.get() : -1, .events = POLLIN, .revents = 0}}};
    // In short turns, since a signal may come between the look and the wait.
    const int ready = ::poll(items.data(), items.size(), static_cast<int>(poll_turn.count()));
    if (ready < 0 && errno != EINTR) os::throw_errno(errno, "cannot wait for rclone");
    if (ready > 0 && items[1].revents != 0) collect_errors();
    if (ready > 0 && items[0].revents != 0) return;
    if (fd < 0 && !errors_.valid()) return;
  }
}

std::size_t RcloneProcess::read(std::span<std::byte> into) {
  std::size_t done = 0;
  while (done < into.size()) {
    const ssize_t n = ::read(output_.get(), into.data() + done, into.size() - done);
    if (n == 0) break;
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(output_.get(), POLLIN);
    } else if (errno != EINTR) {
      os::throw_errno(errno, "cannot read from " + what_);
    }
  }
  return done;
}

void RcloneProcess::read_lines(std::uint64_t most, const std::function<void(std::string_view)>& take) {
  std::string held(longest_listed, '\0');
  std::size_t kept = 0;
  std::uint64_t lines = 0;
  while (true) {
    const std::size_t got = read(std::as_writable_bytes(std::span(held)).subspan(kept));
    const bool is_end = kept + got < held.size();
    std::string_view text(held.data(), kept + got);
    for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
      if (++lines > most) throw Error(Errc::malformed, what_ + " prints more than there can be");
      take(text.substr(0, end));
      text.remove_prefix(end + 1);
    }
    if (is_end) return;
    if (text.size() == held.size()) throw Error(Errc::malformed, what_ + " prints more than there can be");
    kept = text.size();
    std::copy(text.begin(), text.end(), held.begin());
  }
}

void RcloneProcess::write(ByteView bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(input_.get(), bytes.data(), bytes.size());
    if (n >= 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      wait_for(input_.get(), POLLOUT);
    } else if (errno == EPIPE) {
      finish();
      throw Error(Errc::io, what_ + " ended before it had taken all");
    } else if (errno != EINTR) {
      os::throw_errno(errno, "cannot write to " + what_);
    }
  }
}

void RcloneProcess::finish() {
  end_input();
  collect_errors();
  if (errors_.valid()) wait_for(-1, 0);
  const auto deadline = Clock::now() + patience_;
  auto status = child_.ended();
  while (!status) {
    require_no_stop(monitor_);
    if (Clock::now() > deadline) throw Error(Errc::busy, what_ + " doesn't end");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = child_.ended();
  }
  finished_ = true;
  require_no_stop(monitor_);  // what stops this process may have stopped rclone, too
  if (*status != 0) throw rclone_error(*status, last_line(), what_);
}

std::string RcloneProcess::last_line() const {
  std::string_view text = words_;
  while (text.ends_with('\n')) text.remove_suffix(1);
  const std::size_t before = text.rfind('\n');
  return plain(before == std::string_view::npos ? text : text.substr(before + 1));
}

}  // namespace ckpt::transport

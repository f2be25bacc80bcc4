// SPDX-License-Identifier: Apache-2.0
// The only place that asks for a terminal.
#include "cli/terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/environment.hpp"

namespace ckpt::cli {

bool is_terminal(int fd) { return ::isatty(fd) == 1; }

bool is_dumb_terminal() { return environment_text("TERM").value_or("dumb") == "dumb"; }

bool wants_color(int fd, ColorMode mode) {
  if (mode != ColorMode::automatic) return mode == ColorMode::always;
  return is_terminal(fd) && !environment_text("NO_COLOR") && !is_dumb_terminal();
}

std::size_t terminal_width(int fd) {
  constexpr std::size_t usual = 80;
  if (const auto columns = environment_number("COLUMNS", 1, 100'000)) return *columns;
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return usual;
  return size.ws_col;
}

void occupy_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1) continue;
    // The lowest free number is this one: those below are open by now.
    if (::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) std::_Exit(2);
  }
}

}  // namespace ckpt::cli

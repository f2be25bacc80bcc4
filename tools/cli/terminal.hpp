// SPDX-License-Identifier: Apache-2.0
// What stands behind a descriptor: a terminal or not, how wide, with colour or without.
#pragma once

#include <cstddef>

namespace ckpt::cli {

enum class ColorMode { automatic, always, never };

[[nodiscard]] bool is_terminal(int fd);

/// True if escape sequences may go to this descriptor: NO_COLOR and TERM=dumb speak against it, `mode` decides first.
[[nodiscard]] bool wants_color(int fd, ColorMode mode);

/// True if the terminal knows no escape sequences at all.
[[nodiscard]] bool is_dumb_terminal();

/// Columns of a terminal: COLUMNS, else what the kernel says, else 80. Throws if COLUMNS is malformed.
[[nodiscard]] std::size_t terminal_width(int fd);

/// Opens /dev/null on each of the descriptors 0 to 2 that is closed, in the direction in which its use fails: a file
/// opened later can't take the number of a standard stream, and output to a closed one is still an error.
void occupy_standard_descriptors();

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
// Small files as a whole: read with a limit, published in one step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt::os {

/// Nothing if there's no such file; Errc::damaged if it's larger than `limit`.
[[nodiscard]] std::optional<std::string> read_small_file(const std::string& path, std::uint64_t limit);

/// A file of /proc or /sys, which tells no size. Empty if it can't be read: a process may end between two of its bytes.
[[nodiscard]] std::string read_kernel_file(const std::string& path);

/// A new file, or what was there with new content. Not synced.
void write_small_file(const std::string& path, std::string_view content);

enum class Publish {
  replace,    ///< rename over what is there
  first_wins  ///< link: what is there stays
};

/// Writes a temporary file in `scratch` (a directory of the same file system), syncs it, publishes it, syncs the
/// directory of `path`. False if another was first.
bool publish_small_file(const std::string& path, std::string_view content, Publish how, const std::string& scratch);

/// The directory of a path, "." for a plain name.
[[nodiscard]] std::string parent_of(const std::string& path);
/// What stands behind the last slash of a path.
[[nodiscard]] inline std::string_view last_name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// `path` itself if it's there, else the nearest directory above it that is.
[[nodiscard]] std::string existing_ancestor(const std::string& path);

/// Names in a directory, sorted, without "." and ".."; nothing if there's no such directory. As it is now: what a
/// network file system remembers of it is asked for anew.
[[nodiscard]] std::optional<std::vector<std::string>> list_directory(const std::string& path);

/// Removes a directory with all that's in it now, if it's there. Throws io.
void remove_directory(const std::string& path);

/// Makes one directory; true if it's new (and then the parent is synced).
bool make_directory(const std::string& path);
/// Makes a directory and those above it that are missing.
void make_directories(const std::string& path);

/// This host's name as a part of file names: without dots and slashes, never empty.
[[nodiscard]] std::string host_name();

/// A name that no other process, thread or host uses: HOST.PID.COUNTER-AND-TIME.
[[nodiscard]] std::string unique_name();

}  // namespace ckpt::os

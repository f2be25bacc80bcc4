// SPDX-License-Identifier: Apache-2.0
#include "transport/rclone_remote.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>

namespace ckpt::transport {
namespace {

constexpr std::string_view scheme = "rclone:";
/// A thousand checkpoints of a thousand ranks are a quarter of it.
constexpr std::uint64_t most_objects = 4U << 20U;

const std::string step_glob = "[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]";

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  return text;
}

/// The parts of "SIZE;REST".
struct SizedLine {
  std::uint64_t size = 0;
  std::string_view rest;
};
std::optional<SizedLine> parse_line(std::string_view line) {
  SizedLine parsed;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), parsed.size);
  if (error != std::errc() || end == line.data() + line.size() || *end != ';') return std::nullopt;
  parsed.rest = line.substr(static_cast<std::size_t>(end - line.data()) + 1);
  return parsed;
}

using TakeLine = std::function<void(std::string_view)>;

/// Runs a command whose standard input is a list of names.
void run_with_names(
    const std::vector<std::string>& command, const std::vector<std::string>& operands,
    const std::vector<std::string>& names, const RcloneLimits& limits, std::uint64_t bytes,
    const TakeLine& take = [](std::string_view) {}) {
  RcloneProcess process(command, operands, limits, bytes);
  process.write(as_bytes(joined(names)));
  process.end_input();
  process.read_lines(most_objects, take);
  process.finish();
}

/// Runs a command that lists. Nothing if the place isn't there.
void list_lines(const std::vector<std::string>& command, const std::string& path, const RcloneLimits& limits,
                const TakeLine& take) {
  RcloneProcess process(command, {path}, limits);
  process.end_input();
  process.read_lines(most_objects, take);
  try {
    process.finish();
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
  }
}

}  // namespace

bool is_rclone(const std::string& text) { return text.starts_with(scheme); }

RcloneRemote::RcloneRemote(std::string address, std::chrono::milliseconds patience, const Monitor& monitor)
    : address_(std::move(address)), limits_{.patience = patience, .monitor = monitor} {
  root_ = address_.substr(std::min(scheme.size(), address_.size()));
  // A connection string such as ":local:/path" begins with a colon.
  const std::size_t colon = root_.find(':', 1);
  const bool has_control =
      std::any_of(root_.begin(), root_.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; });
  if (!is_rclone(address_) || colon == std::string::npos || root_.starts_with('-') || has_control)
    throw Error(Errc::invalid_argument, "'" + address_ + "' is not rclone:REMOTE:PATH");
  if (!root_.ends_with(':') && !root_.ends_with('/')) root_ += '/';
}

std::string RcloneRemote::path_of(const std::string& name) const { return root_ + name; }

std::string RcloneRemote::address(const std::string& name) const { return std::string(scheme) + path_of(name); }

ObjectSizes RcloneRemote::list_path(const std::vector<std::string>& command, const std::string& path) const {
  ObjectSizes sizes;
  list_lines(command, path, limits_, [&](std::string_view line) {
    if (const auto object = parse_line(line)) sizes.emplace(object->rest, object->size);
  });
  return sizes;
}

ObjectSizes RcloneRemote::list() const {
  return list_path({"lsf", "--recursive", "--fast-list", "--files-only", "--format=sp", "--include=/ckpt-store.json",
                    "--include=/" + step_glob + "/*", "--include=/.retired/*/*"},
                   root_);
}

ObjectSizes RcloneRemote::list(const std::string& directory) const {
  return list_path({"lsf", "--files-only", "--format=sp"}, path_of(directory));
}

bool RcloneRemote::is_empty() const {
  bool found = false;
  list_lines({"lsf"}, root_, limits_, [&](std::string_view) { found = true; });
  return !found;
}

void RcloneRemote::fetch(const std::vector<std::string>& names, const std::string& local_directory,
                         std::uint64_t bytes) const {
  if (names.empty()) return;
  constexpr std::uint64_t slack = 1U << 20U;  // rclone counts what it tries again
  run_with_names({"copy", "--files-from-raw=-", "--no-traverse", "--transfers=16", "--checkers=16",
                  "--max-transfer=" + std::to_string(2 * bytes + slack) + "B", "--cutoff-mode=hard"},
                 {root_, local_directory}, names, limits_, bytes);
}

std::unique_ptr<RcloneProcess> RcloneRemote::open(const std::string& name, std::uint64_t offset) const {
  auto process = std::make_unique<RcloneProcess>(std::vector<std::string>{"cat", "--offset=" + std::to_string(offset)},
                                                 std::vector{path_of(name)}, limits_);
  process->end_input();
  return process;
}

Bytes RcloneRemote::read(const std::string& name, std::uint64_t offset, std::uint64_t size) const {
  RcloneProcess process({"cat", "--offset=" + std::to_string(offset), "--count=" + std::to_string(size)},
                        {path_of(name)}, limits_);
  process.end_input();
  Bytes bytes(size);
  bytes.resize(process.read(bytes));
  process.finish();
  // Where there are no directories, an object that isn't there is an empty one.
  if (bytes.size() != size)
    throw Error(Errc::not_found,
                "'" + address(name) + "' is gone, or ends before byte " + std::to_string(offset + size));
  return bytes;
}

std::map<std::string, std::string> RcloneRemote::md5_sums(const std::string& directory,
                                                          const std::vector<std::string>& files,
                                                          std::uint64_t bytes) const {
  constexpr std::size_t digits = 32;
  std::map<std::string, std::string> sums;
  run_with_names({"lsf", "--files-only", "--format=shp", "--hash=md5", "--files-from-raw=-"}, {path_of(directory)},
                 files, limits_, bytes, [&](std::string_view line) {
                   const auto object = parse_line(line);
                   if (!object || object->rest.size() <= digits || object->rest[digits] != ';') return;
                   sums.emplace(object->rest.substr(digits + 1), object->rest.substr(0, digits));
                 });
  return sums;
}

std::unique_ptr<RcloneProcess> RcloneRemote::create(const std::string& name, std::uint64_t size) const {
  return std::make_unique<RcloneProcess>(std::vector<std::string>{"rcat", "--size=" + std::to_string(size)},
                                         std::vector{path_of(name)}, limits_, size);
}

void RcloneRemote::put(const std::string& name, std::string_view text) const {
  const auto process = create(name, text.size());
  process->write(as_bytes(text));
  process->finish();
  const Bytes back = read(name, 0, text.size());
  if (as_text(back) != text) throw Error(Errc::damaged, "'" + address(name) + "' isn't what was written to it");
}

void RcloneRemote::copy_files(const std::string& from, const std::string& to, const std::vector<std::string>& files,
                              std::uint64_t bytes) const {
  run_with_names({"copy", "--files-from-raw=-", "--no-traverse"}, {path_of(from), path_of(to)}, files, limits_, bytes);
}

void RcloneRemote::remove_file(const std::string& name) const {
  RcloneProcess process({"deletefile"}, {path_of(name)}, limits_);
  process.finish();
}

void RcloneRemote::remove_files(const std::string& directory, const std::vector<std::string>& files) const {
  if (!files.empty()) run_with_names({"delete", "--files-from-raw=-"}, {path_of(directory)}, files, limits_, 0);
}

void RcloneRemote::remove_directory(const std::string& name) const {
  RcloneProcess process({"purge"}, {path_of(name)}, limits_);
  try {
    process.finish();
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
  }
}

}  // namespace ckpt::transport

// SPDX-License-Identifier: Apache-2.0
#include "source/source_tree.hpp"

#include "os/fd.hpp"
#include "os/small_file.hpp"

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <map>
#include <utility>

namespace ckpt::source {
namespace {

using format::EntryType;

constexpr std::size_t deepest_directory = 256;

std::string join(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

/// "./a//b/" -> "a/b"; "." -> "".
std::string normalized(const std::string& path) {
  std::string out;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    const std::string component = path.substr(begin, end - begin);
    begin = end + 1;
    if (!component.empty() && component != ".") out = join(out, component);
  }
  return out;
}

std::string base_name(const std::string& path) {
  std::string name = normalized(path);
  name.erase(0, name.rfind('/') + 1);
  return name;
}

std::string read_link(const std::string& path) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlink(path.c_str(), target.data(), target.size());
  if (size < 0) os::throw_errno(errno, "cannot read the link '" + path + "'");
  return {target.data(), static_cast<std::size_t>(size)};
}

struct stat require_status(const std::string& path, bool follow) {
  const auto st = os::stat_path(path, follow);
  if (!st) throw Error(Errc::not_found, "cannot open '" + path + "': No such file or directory");
  return *st;
}

class Walk {
 public:
  explicit Walk(bool owner) : owner_(owner) {}

  /// `path` is the name in the checkpoint; `root` is the part of it that is the operand, whose tree links may not
  /// leave.
  void add(const std::string& path, const std::string& origin, const std::string& root) {
    struct stat st = require_status(origin, false);
    if (S_ISLNK(st.st_mode)) {
      const std::string target = read_link(origin);
      const std::string inside = root.empty() ? path : path.substr(root.size() + 1);
      if (format::stays_inside(inside, target)) {
        TreeEntry entry = make_entry(path, origin, st, owner_);
        entry.file.target = target;
        entries_.push_back(std::move(entry));
        return;
      }
      // What a link inside the followed directory points to is judged by that directory: it's the root there.
      ++followed_;
      st = require_status(origin, true);
      add_found(path, origin, st, path);
      --followed_;
      return;
    }
    add_found(path, origin, st, root);
  }

  void add_found(const std::string& path, const std::string& origin, const struct stat& st, const std::string& root) {
    if (S_ISDIR(st.st_mode)) {
      if (!path.empty()) entries_.push_back(make_entry(path, origin, st, owner_));
      add_contents(path, origin, st, root);
      return;
    }
    if (!S_ISREG(st.st_mode)) {
      throw Error(Errc::invalid_argument, "'" + origin + "' is neither a file nor a directory")
          .with_hint("sockets, FIFOs and devices can't be saved");
    }
    entries_.push_back(make_entry(path, origin, st, owner_));
    // Reached through a symlink it isn't a second name of the same file.
    if (followed_ > 0) entries_.back().status.st_nlink = 1;
  }

  void add_contents(const std::string& path, const std::string& origin, const struct stat& st,
                    const std::string& root) {
    const std::pair self(st.st_dev, st.st_ino);
    if (std::find(open_.begin(), open_.end(), self) != open_.end()) {
      throw Error(Errc::invalid_argument, "'" + origin + "' is a link to a directory that it lies in");
    }
    if (open_.size() >= deepest_directory) throw Error(Errc::invalid_argument, "'" + origin + "' lies too deep");
    open_.push_back(self);
    const auto names = os::list_directory(origin);
    if (!names) throw Error(Errc::not_found, "cannot list '" + origin + "': No such file or directory");
    for (const std::string& name : *names) add(join(path, name), origin + "/" + name, root);
    open_.pop_back();
  }

  [[nodiscard]] std::vector<TreeEntry> take() { return std::move(entries_); }

 private:
  bool owner_;
  int followed_ = 0;
  std::vector<std::pair<dev_t, ino_t>> open_;  // directories above the one at hand
  std::vector<TreeEntry> entries_;
};

}  // namespace

TreeEntry make_entry(std::string path, std::string origin, const struct stat& status, bool owner) {
  TreeEntry entry;
  entry.file.path = std::move(path);
  entry.shown = "'" + origin + "'";
  entry.origin = std::move(origin);
  entry.status = status;
  entry.file.mtime_ns = static_cast<std::int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
  entry.file.mode = status.st_mode & 07777U;
  if (S_ISDIR(status.st_mode)) {
    entry.file.type = EntryType::directory;
  } else if (S_ISLNK(status.st_mode)) {
    entry.file.type = EntryType::symlink;
    entry.file.mode = 0777;
  } else {
    entry.file.size = static_cast<std::uint64_t>(status.st_size);
  }
  if (owner) {
    entry.file.uid = status.st_uid;
    entry.file.gid = status.st_gid;
  }
  return entry;
}

std::vector<TreeEntry> arrange(std::vector<TreeEntry> entries) {
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TreeEntry& a, const TreeEntry& b) { return a.file.path < b.file.path; });
  std::vector<TreeEntry> arranged;
  std::map<std::pair<dev_t, ino_t>, std::string> first_names;
  for (TreeEntry& entry : entries) {
    if (!format::is_safe_path(entry.file.path)) {
      throw Error(Errc::invalid_argument, "the name '" + entry.file.path + "' would leave the tree");
    }
    if (!arranged.empty() && arranged.back().file.path == entry.file.path) {
      const auto is_directory = [](const TreeEntry& e) { return e.file.type == EntryType::directory; };
      if (is_directory(arranged.back()) && is_directory(entry)) continue;
      throw Error(Errc::exists, "the name '" + entry.file.path + "' is there twice: " + arranged.back().shown +
                                    " and " + entry.shown);
    }
    if (entry.file.type == EntryType::file && entry.status.st_nlink > 1) {
      const auto [first, is_new] =
          first_names.emplace(std::pair(entry.status.st_dev, entry.status.st_ino), entry.file.path);
      if (!is_new) {
        entry.file.type = EntryType::hardlink;
        entry.file.target = first->second;
        entry.file.size = 0;
      }
    }
    arranged.push_back(std::move(entry));
  }
  return arranged;
}

std::vector<TreeEntry> collect_tree(const TreeRequest& request) {
  Walk walk(request.owner);
  for (const std::string& operand : request.operands) {
    if (operand.empty()) throw Error(Errc::invalid_argument, "a source has an empty name");
    if (request.directory) {
      const std::string name = normalized(operand);
      if (operand.front() == '/' || (!name.empty() && !format::is_safe_path(name))) {
        throw Error(Errc::invalid_argument, "the name '" + operand + "' would leave the tree");
      }
      const std::string origin = *request.directory + "/" + operand;
      const struct stat st = require_status(origin, true);
      if (S_ISDIR(st.st_mode)) {
        walk.add_found(name, origin, st, name);
      } else {
        walk.add_found(name, origin, st, {});
      }
      continue;
    }
    // The operand itself is followed, as by cp and tar.
    const struct stat st = require_status(operand, true);
    if (S_ISDIR(st.st_mode)) {
      walk.add_contents({}, operand, st, {});
    } else {
      walk.add_found(base_name(operand), operand, st, {});
    }
  }
  return walk.take();
}

bool is_unchanged(const struct stat& before, const struct stat& now) {
  return before.st_dev == now.st_dev && before.st_ino == now.st_ino && before.st_size == now.st_size &&
         before.st_mtim.tv_sec == now.st_mtim.tv_sec && before.st_mtim.tv_nsec == now.st_mtim.tv_nsec &&
         before.st_ctim.tv_sec == now.st_ctim.tv_sec && before.st_ctim.tv_nsec == now.st_ctim.tv_nsec;
}

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// Raw system calls only: the usual functions are the ones that are being watched.
#include "fault_disk.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#ifndef RENAME_EXCHANGE
#define RENAME_EXCHANGE (1u << 1)
#endif

namespace fault {
namespace {

Inode inode_of(const struct stat& st) { return {st.st_dev, st.st_ino}; }

Inode inode_at(int dir, const std::string& name) {
  struct stat st {};
  if (fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return {};
  return inode_of(st);
}

void check(long result, const char* what) {
  if (result >= 0) return;
  perror(what);
  syscall(SYS_exit_group, 98);
}

}  // namespace

std::string path_of(int fd) {
  char link[64];
  char path[8192];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, path, sizeof path);
  return n <= 0 ? std::string() : std::string(path, static_cast<std::size_t>(n));
}

int raise_fd(int fd) {
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, 400);
  check(high, "fault_shim: dup");
  syscall(SYS_close, fd);
  return high;
}

void Disk::open(const std::string& grave, bool names) {
  names_ = names;
  if (!names) return;
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, grave.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
  check(fd, "fault_shim: CKPT_FAULT_GRAVE");
  grave_ = raise_fd(fd);
}

int Disk::keep(int dir) {
  struct stat st {};
  check(fstat(dir, &st), "fault_shim: fstat");
  const auto [it, is_new] = dirs_.try_emplace(inode_of(st), -1);
  if (is_new) {
    it->second = fcntl(dir, F_DUPFD_CLOEXEC, 400);
    check(it->second, "fault_shim: dup");
  }
  return it->second;
}

// A description of its own, readable too: offsets, locks and flags of the program's stay as they are.
void Disk::opened(int fd, bool is_new) {
  struct stat st {};
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return;
  const auto [it, added] = files_.try_emplace(inode_of(st));
  if (!added) return;
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const int own = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), O_RDWR | O_CLOEXEC, 0));
  check(own, "fault_shim: reopen");
  it->second.fd = raise_fd(own);
  it->second.synced = is_new ? 0 : st.st_size;
}

Disk::Data* Disk::data_of(int fd) {
  struct stat st {};
  if (fstat(fd, &st) != 0) return nullptr;
  const auto it = files_.find(inode_of(st));
  return it == files_.end() ? nullptr : &it->second;
}

void Disk::save_bytes(Data& data, off_t begin, off_t end) {
  end = std::min(end, data.synced);
  if (begin >= end) return;
  std::string old(static_cast<std::size_t>(end - begin), '\0');
  const ssize_t n = pread(data.fd, old.data(), old.size(), begin);
  check(n, "fault_shim: pread");
  old.resize(static_cast<std::size_t>(n));
  data.overwritten.emplace_back(begin, std::move(old));
}

void Disk::before_write(int fd, off_t offset, std::size_t size) {
  Data* data = data_of(fd);
  if (data == nullptr) return;
  save_bytes(*data, offset, offset + static_cast<off_t>(size));
  data->dirty = true;
}

void Disk::before_truncate(int fd, off_t size) {
  Data* data = data_of(fd);
  if (data == nullptr) return;
  save_bytes(*data, size, data->synced);
  data->dirty = true;
}

void Disk::before_truncate(int dir, const std::string& name, off_t size) {
  const int fd = static_cast<int>(syscall(SYS_openat, dir, name.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (fd < 0) return;
  opened(fd, false);
  before_truncate(fd, size);
  syscall(SYS_close, fd);
}

void Disk::created(int dir, const std::string& name) {
  if (!names_) return;
  Entry entry;
  entry.dir = keep(dir);
  entry.where = inode_at(entry.dir, ".");
  entry.name = name;
  entry.inode = inode_at(dir, name);
  entries_.push_back(std::move(entry));
}

Disk::Removed Disk::before_remove(int dir, const std::string& name) {
  Removed removed;
  struct stat st {};
  if (!names_ || fstatat(dir, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) return removed;
  removed.inode = inode_of(st);
  removed.mode = st.st_mode;
  if (S_ISDIR(st.st_mode)) return removed;
  removed.grave = std::to_string(++graves_);
  check(syscall(SYS_linkat, dir, name.c_str(), grave_, removed.grave.c_str(), 0), "fault_shim: bury");
  return removed;
}

void Disk::removed(int dir, const std::string& name, const Removed& removed) {
  if (!names_) return;
  Entry entry;
  entry.kind = Entry::Kind::remove;
  entry.dir = keep(dir);
  entry.where = inode_at(entry.dir, ".");
  entry.name = name;
  entry.victim = removed;
  entries_.push_back(std::move(entry));
}

Disk::Moved Disk::before_rename(int from, const std::string& from_name, int to, const std::string& to_name) {
  Moved moved;
  if (!names_) return moved;
  moved.inode = inode_at(from, from_name);
  const Inode victim = inode_at(to, to_name);
  moved.replaces = victim != Inode{} && victim != moved.inode;
  if (moved.replaces) moved.victim = before_remove(to, to_name);
  return moved;
}

void Disk::renamed(int from, const std::string& from_name, int to, const std::string& to_name, unsigned flags,
                   const Moved& moved) {
  if (!names_) return;
  Entry entry;
  entry.kind = Entry::Kind::rename;
  entry.dir = keep(to);
  entry.where = inode_at(entry.dir, ".");
  entry.name = to_name;
  entry.from = keep(from);
  entry.from_name = from_name;
  entry.flags = flags;
  entry.inode = moved.inode;
  entry.replaces = moved.replaces;
  entry.victim = moved.victim;
  entries_.push_back(std::move(entry));
}

void Disk::synced(int fd) {
  struct stat st {};
  if (fstat(fd, &st) != 0) return;
  if (S_ISDIR(st.st_mode)) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.where == inode_of(st); });
    return;
  }
  Data* data = data_of(fd);
  if (data == nullptr) return;
  data->synced = st.st_size;
  data->overwritten.clear();
  data->dirty = false;
}

void Disk::all_synced() {
  entries_.clear();
  for (auto& [inode, data] : files_) {
    struct stat st {};
    check(fstat(data.fd, &st), "fault_shim: fstat");
    data.synced = st.st_size;
    data.overwritten.clear();
    data.dirty = false;
  }
}

void Disk::bury(int dir, const std::string& name) {
  const std::string grave = "lost-" + std::to_string(++graves_);
  check(syscall(SYS_renameat2, dir, name.c_str(), grave_, grave.c_str(), 0), "fault_shim: undo");
}

void Disk::put_back(int dir, const std::string& name, const Removed& victim) {
  if (inode_at(dir, name) != Inode{}) return;
  if (victim.grave.empty()) {
    check(syscall(SYS_mkdirat, dir, name.c_str(), victim.mode & 07777), "fault_shim: undo rmdir");
    reborn_[victim.inode] = inode_at(dir, name);
    // Earlier changes were made in the directory that is gone; they're undone in the new one.
    const auto kept = dirs_.find(victim.inode);
    if (kept == dirs_.end()) return;
    const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    const int fd = static_cast<int>(syscall(SYS_openat, dir, name.c_str(), flags, 0));
    check(fd, "fault_shim: undo rmdir");
    check(dup3(fd, kept->second, O_CLOEXEC), "fault_shim: undo rmdir");
    syscall(SYS_close, fd);
    return;
  }
  check(syscall(SYS_linkat, grave_, victim.grave.c_str(), dir, name.c_str(), 0), "fault_shim: undo unlink");
}

Inode Disk::today(const Inode& inode) const {
  const auto it = reborn_.find(inode);
  return it == reborn_.end() ? inode : it->second;
}

// A later change of the same name may have become durable, so each step looks at what is there now.
void Disk::undo(const Entry& entry) {
  switch (entry.kind) {
    case Entry::Kind::create:
      if (inode_at(entry.dir, entry.name) == today(entry.inode)) bury(entry.dir, entry.name);
      return;
    case Entry::Kind::remove: put_back(entry.dir, entry.name, entry.victim); return;
    case Entry::Kind::rename:
      if (inode_at(entry.dir, entry.name) != today(entry.inode)) return;
      if (entry.flags == RENAME_EXCHANGE) {
        check(syscall(SYS_renameat2, entry.dir, entry.name.c_str(), entry.from, entry.from_name.c_str(), entry.flags),
              "fault_shim: undo exchange");
        return;
      }
      if (inode_at(entry.from, entry.from_name) != Inode{}) return bury(entry.dir, entry.name);
      check(syscall(SYS_renameat2, entry.dir, entry.name.c_str(), entry.from, entry.from_name.c_str(), 0),
            "fault_shim: undo rename");
      if (entry.replaces) put_back(entry.dir, entry.name, entry.victim);
      return;
  }
}

void Disk::cut(bool tear) {
  for (auto& [inode, data] : files_) {
    if (!data.dirty) continue;
    struct stat st {};
    check(fstat(data.fd, &st), "fault_shim: fstat");
    if (tear && st.st_size > data.synced) {
      const std::string zeros(static_cast<std::size_t>(st.st_size - data.synced), '\0');
      check(syscall(SYS_pwrite64, data.fd, zeros.data(), zeros.size(), data.synced), "fault_shim: tear");
    }
    if (!tear) check(syscall(SYS_ftruncate, data.fd, data.synced), "fault_shim: drop");
    std::reverse(data.overwritten.begin(), data.overwritten.end());
    for (const auto& [offset, old] : data.overwritten)
      check(syscall(SYS_pwrite64, data.fd, old.data(), old.size(), offset), "fault_shim: restore");
  }
  if (!tear) std::for_each(entries_.rbegin(), entries_.rend(), [&](const Entry& entry) { undo(entry); });
}

}  // namespace fault

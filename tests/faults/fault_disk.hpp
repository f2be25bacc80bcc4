// SPDX-License-Identifier: Apache-2.0
// The books that a simulated power cut needs: which bytes and which names no fsync has covered yet, and how to undo
// them. A name is durable once the directory it's in was synced (a rename: the directory it went to); bytes and size
// once their file was. Directories are held open, so that a rename of a parent doesn't lose them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fault {

using Inode = std::pair<dev_t, ino_t>;

/// The path behind a descriptor, or empty.
std::string path_of(int fd);
/// Moves a descriptor out of the range that the program under test uses.
int raise_fd(int fd);

/// Not thread-safe: the caller holds a lock around each call and the system call it belongs to.
class Disk {
 public:
  struct Removed {
    Inode inode{};
    std::string grave;  ///< empty: it was a directory
    mode_t mode = 0;
  };
  struct Moved {
    Inode inode{};
    bool replaces = false;
    Removed victim;
  };

  void open(const std::string& grave, bool names);

  void opened(int fd, bool is_new);
  void before_write(int fd, off_t offset, std::size_t size);
  void before_truncate(int fd, off_t size);
  void before_truncate(int dir, const std::string& name, off_t size);

  void created(int dir, const std::string& name);
  Moved before_rename(int from, const std::string& from_name, int to, const std::string& to_name);
  void renamed(int from, const std::string& from_name, int to, const std::string& to_name, unsigned flags,
               const Moved& moved);
  Removed before_remove(int dir, const std::string& name);
  void removed(int dir, const std::string& name, const Removed& removed);

  void synced(int fd);
  void all_synced();

  /// The power goes: `tear` keeps names and zeroes unsynced bytes, else both are undone.
  void cut(bool tear);

 private:
  struct Data {
    int fd = -1;
    off_t synced = 0;  ///< the file's size at its last fsync
    std::vector<std::pair<off_t, std::string>> overwritten;
    bool dirty = false;
  };
  struct Entry {
    enum class Kind { create, rename, remove } kind = Kind::create;
    Inode where{};  ///< the directory whose fsync makes it durable
    int dir = -1;
    std::string name;
    int from = -1;
    std::string from_name;
    unsigned flags = 0;
    Inode inode{};
    bool replaces = false;
    Removed victim;
  };

  int keep(int dir);
  Data* data_of(int fd);
  void save_bytes(Data& data, off_t begin, off_t end);
  void undo(const Entry& entry);
  void put_back(int dir, const std::string& name, const Removed& victim);
  void bury(int dir, const std::string& name);
  Inode today(const Inode& inode) const;

  bool names_ = false;
  int grave_ = -1;
  unsigned graves_ = 0;
  std::map<Inode, int> dirs_;
  std::map<Inode, Inode> reborn_;  ///< directories that had to be made again, by what they were
  std::map<Inode, Data> files_;
  std::vector<Entry> entries_;
};

}  // namespace fault

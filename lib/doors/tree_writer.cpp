// SPDX-License-Identifier: Apache-2.0
#include "doors/tree_writer.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace ckpt::doors {

TreeWriter::TreeWriter(std::string root, const std::vector<format::FileEntry>& entries)
    : entries_(entries), builder_(std::move(root)) {
  advance();
}

void TreeWriter::advance() {
  while (!file_.valid() && next_ < entries_.size()) {
    const format::FileEntry& entry = entries_[next_++];
    if (entry.type != format::EntryType::file) {
      builder_.add(entry);
      continue;
    }
    file_ = builder_.create_file(entry);
    left_ = entry.size;
    if (left_ > 0) return;
    builder_.finish_file(file_, entry);
    file_.close(builder_.path_of(entry.path));
  }
}

void TreeWriter::append(ByteView bytes) {
  while (!bytes.empty()) {
    if (!file_.valid()) throw std::logic_error("more bytes than the entries have");
    const format::FileEntry& entry = entries_[next_ - 1];
    const std::size_t count = std::min<std::uint64_t>(left_, bytes.size());
    os::write_all(file_, bytes.first(count), builder_.path_of(entry.path));
    bytes = bytes.subspan(count);
    left_ -= count;
    if (left_ > 0) return;
    builder_.finish_file(file_, entry);
    file_.close(builder_.path_of(entry.path));
    advance();
  }
}

void TreeWriter::finish() {
  if (file_.valid() || next_ < entries_.size()) throw std::logic_error("fewer bytes than the entries have");
  builder_.finish();
}

}  // namespace ckpt::doors

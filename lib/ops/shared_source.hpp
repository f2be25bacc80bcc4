// SPDX-License-Identifier: Apache-2.0
// One source for several destinations: what was read last is kept for a while, so those that are in step read once, and
// a slow one reads for itself and holds up no one.
#pragma once

#include "transport/replica.hpp"

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace ckpt::ops {

/// Thread-safe.
class SharedSource {
 public:
  explicit SharedSource(std::unique_ptr<transport::Replica> replica) : replica_(std::move(replica)) {}

  [[nodiscard]] std::string name() const { return replica_->name(); }
  [[nodiscard]] transport::Inventory inventory();
  [[nodiscard]] std::string manifest(const format::BaseCheckpoint& checkpoint, bool retired);
  [[nodiscard]] std::optional<std::string> other_form(const transport::FormRequest& request);
  /// At most transport::max_piece bytes from `offset` on.
  [[nodiscard]] std::shared_ptr<const Bytes> read(const transport::FileName& file, std::uint64_t offset,
                                                  std::uint64_t size);
  /// Nothing is kept from now on: there's one destination.
  void keep_nothing() { limit_ = 0; }

 private:
  struct Piece {
    transport::FileName file;
    std::uint64_t offset = 0;
    std::shared_ptr<const Bytes> bytes;
  };

  struct Form {
    transport::FormRequest request;
    std::string manifest;
  };

  std::mutex mutex_;
  std::optional<Form> form_;  ///< that was made last
  std::unique_ptr<transport::Replica> replica_;
  std::size_t limit_ = 64;   ///< pieces
  std::list<Piece> pieces_;  ///< the newest is at the end
};

}  // namespace ckpt::ops

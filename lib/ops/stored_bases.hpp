// SPDX-License-Identifier: Apache-2.0
// The containers of a store that blocks of others are decoded against: opened when they're needed, a few kept open.
#pragma once

#include "format/block_decoder.hpp"
#include "format/container_reader.hpp"
#include "store/store.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ckpt::ops {

/// Thread-safe.
class StoredBases final : public format::BaseContainers {
 public:
  explicit StoredBases(std::string store_path) : store_path_(std::move(store_path)) {}

  [[nodiscard]] std::shared_ptr<const format::ContainerReader> open(const format::BaseCheckpoint& checkpoint,
                                                                    std::uint32_t rank) const override;

 private:
  struct Open {
    format::BaseCheckpoint checkpoint;
    std::uint32_t rank = 0;
    std::shared_ptr<const format::ContainerReader> reader;
  };
  std::string store_path_;
  mutable std::mutex mutex_;
  mutable std::vector<Open> open_;  ///< the last used one is at the end
};

/// For the containers of a checkpoint.
[[nodiscard]] std::shared_ptr<const format::BaseContainers> bases_for(const store::Checkpoint& checkpoint);

}  // namespace ckpt::ops

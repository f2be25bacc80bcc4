// SPDX-License-Identifier: Apache-2.0
// A store in a directory, as one side of a sync.
#pragma once

#include "format/container_reader.hpp"
#include "ops/incoming.hpp"
#include "ops/other_form.hpp"
#include "os/fd.hpp"
#include "transport/replica.hpp"

#include <map>
#include <optional>

namespace ckpt::ops {

class LocalReplica final : public transport::Replica {
 public:
  /// The store is made when something is written to it. Everything that another may have asked for is checked against
  /// what the store holds: no name leads out of it.
  LocalReplica(std::string path, unsigned jobs, Monitor& monitor);

  [[nodiscard]] std::string name() const override { return path_; }
  [[nodiscard]] transport::Inventory inventory() override;
  [[nodiscard]] std::string manifest(const format::BaseCheckpoint& checkpoint, bool retired) override;
  void read(const transport::FileName& file, std::uint64_t offset, std::span<std::byte> into) override;
  [[nodiscard]] std::optional<std::string> other_form(const transport::FormRequest& request) override;
  [[nodiscard]] Bytes read_block(const format::BaseCheckpoint& checkpoint, std::uint32_t rank,
                                 std::uint64_t block) override;
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> prepare(const transport::Offer& offer) override;
  [[nodiscard]] std::optional<std::uint64_t> prepare_shard(const transport::ReplicaShard& shard) override;
  void write(std::uint32_t shard, ByteView bytes) override;
  bool commit() override;
  void retire(const format::BaseCheckpoint& checkpoint) override;
  [[nodiscard]] transport::Removal remove(const std::vector<std::uint64_t>& steps) override;

 private:
  [[nodiscard]] store::Checkpoint find(const format::BaseCheckpoint& checkpoint, bool retired) const;
  void open_file(const transport::FileName& file);

  std::string path_;
  unsigned jobs_;
  Monitor& monitor_;
  // The file that was read last: the next read is of it, nearly always.
  std::optional<transport::FileName> open_file_;
  std::string open_path_;
  os::Fd open_fd_;
  std::optional<OtherForm> other_form_;
  std::optional<store::Pin> reading_;  ///< so that it isn't removed or encoded anew meanwhile, where that can be said
  std::shared_ptr<const format::ContainerReader> container_;  ///< whose block was read last
  format::BaseCheckpoint container_of_;
  std::uint32_t container_rank_ = 0;
  // What is being written: one of the two.
  std::optional<IncomingCheckpoint> checkpoint_;
  std::optional<IncomingShard> shard_;
};

}  // namespace ckpt::ops

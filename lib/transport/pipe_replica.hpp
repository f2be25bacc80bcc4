// SPDX-License-Identifier: Apache-2.0
// A replica at the other end of a pipe, where `ckpt-sync --server` answers.
#pragma once

#include "transport/replica.hpp"
#include "transport/sign_of_life.hpp"
#include "transport/wire.hpp"

#include <deque>
#include <memory>
#include <mutex>

namespace ckpt::transport {

class PipeReplica final : public Replica {
 public:
  /// Says hello. `lifeline` goes once the pipe is closed: who is at its other end. Throws unsupported if no version is
  /// known to both.
  explicit PipeReplica(Wire wire, std::shared_ptr<const void> lifeline = nullptr);

  [[nodiscard]] std::string name() const override { return wire_.peer(); }
  [[nodiscard]] Inventory inventory() override;
  [[nodiscard]] std::string manifest(const format::BaseCheckpoint& checkpoint, bool retired) override;
  void read(const FileName& file, std::uint64_t offset, std::span<std::byte> into) override;
  [[nodiscard]] std::optional<std::string> other_form(const FormRequest& request) override;
  [[nodiscard]] Bytes read_block(const format::BaseCheckpoint& checkpoint, std::uint32_t rank,
                                 std::uint64_t block) override;
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> prepare(const Offer& offer) override;
  [[nodiscard]] std::optional<std::uint64_t> prepare_shard(const ReplicaShard& shard) override;
  void write(std::uint32_t shard, ByteView bytes) override;
  bool commit() override;
  void retire(const format::BaseCheckpoint& checkpoint) override;
  [[nodiscard]] Removal remove(const std::vector<std::uint64_t>& steps) override;

  [[nodiscard]] const Wire& wire() const { return wire_; }

 private:
  /// A read that has been asked for and not yet been answered.
  struct Ahead {
    std::string file;  ///< the payload that names it
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
  };

  [[nodiscard]] Bytes ask(MessageType type, ByteView payload);
  void send(MessageType type, ByteView payload);
  [[nodiscard]] Bytes answer();
  void request(const Ahead& ahead);
  void settle_reads();

  std::shared_ptr<const void> lifeline_;  // before wire_, which is closed first
  Wire wire_;
  std::deque<Ahead> ahead_;
  std::mutex sending_;
  std::unique_ptr<SignOfLife> alive_;  ///< the other side may wait for this one longer than it's patient with silence
};

}  // namespace ckpt::transport

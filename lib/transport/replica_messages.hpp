// SPDX-License-Identifier: Apache-2.0
// A replica's requests and answers as payloads of messages, for both ends of a pipe.
#pragma once

#include "transport/replica.hpp"
#include "transport/wire.hpp"

#include <ckpt/error.hpp>

namespace ckpt::transport {

/// What both ends say first.
struct Hello {
  std::uint64_t version = 1;   ///< of the protocol: the lower of the two is spoken
  std::uint64_t features = 0;  ///< bits that both have may be used
};
inline constexpr std::uint64_t protocol_version = 1;

void put(FieldWriter& out, const Hello& hello);
void put(FieldWriter& out, const format::BaseCheckpoint& checkpoint);
void put(FieldWriter& out, const std::vector<format::BaseCheckpoint>& checkpoints);
void put(FieldWriter& out, const ReplicaShard& shard);
void put(FieldWriter& out, const Inventory& inventory);
void put(FieldWriter& out, const std::vector<std::uint64_t>& steps);
void put(FieldWriter& out, const Removal& removal);
void put(FieldWriter& out, const FileName& file);
void put(FieldWriter& out, const FormRequest& request);
void put(FieldWriter& out, const Offer& offer);
void put(FieldWriter& out, const Error& error);

[[nodiscard]] Hello get_hello(FieldReader& in);
[[nodiscard]] format::BaseCheckpoint get_checkpoint(FieldReader& in);
[[nodiscard]] std::vector<format::BaseCheckpoint> get_checkpoints(FieldReader& in);
[[nodiscard]] ReplicaShard get_shard(FieldReader& in);
[[nodiscard]] Inventory get_inventory(FieldReader& in);
[[nodiscard]] std::vector<std::uint64_t> get_steps(FieldReader& in);
[[nodiscard]] Removal get_removal(FieldReader& in);
[[nodiscard]] FileName get_file(FieldReader& in);
[[nodiscard]] FormRequest get_form_request(FieldReader& in);
[[nodiscard]] Offer get_offer(FieldReader& in);
/// The error that the other side had, with its name in front.
[[nodiscard]] Error get_error(FieldReader& in, const std::string& peer);

}  // namespace ckpt::transport

// SPDX-License-Identifier: Apache-2.0
#include "transport/replica_messages.hpp"

#include "format/constants.hpp"

#include <ckpt/address.hpp>

namespace ckpt::transport {
namespace {

constexpr std::size_t longest_name = 255;
constexpr std::size_t longest_words = 1U << 16U;
constexpr std::size_t checkpoint_size = 4 + 32 + 8;
constexpr std::size_t least_entry = checkpoint_size + 6 * 8;
constexpr std::size_t least_shard = 4 * 8 + 4 + 8 + 4 + 32;

std::uint32_t narrow(std::uint64_t value) { return static_cast<std::uint32_t>(value); }

void put_set(FieldWriter& out, const store::SetKey& set) {
  out.number(set.step).number(set.world_size).number(set.attempt);
}

store::SetKey get_set(FieldReader& in) {
  store::SetKey set;
  set.step = in.number(max_step);
  set.world_size = narrow(in.number(format::max_world_size));
  set.attempt = in.number();
  return set;
}

/// A name in a directory, and nothing that leads out of it.
std::string get_name(FieldReader& in) {
  std::string name = in.text(longest_name);
  if (!store::parse_shard_name(name)) throw Error(Errc::malformed, "a message names something that is no shard");
  return name;
}

}  // namespace

void put(FieldWriter& out, const Hello& hello) { out.text("ckpt-sync").number(hello.version).number(hello.features); }

Hello get_hello(FieldReader& in) {
  if (in.text(longest_name) != "ckpt-sync") throw Error(Errc::malformed, "the other side is no ckpt-sync");
  Hello hello;
  hello.version = in.number();
  hello.features = in.number();
  return hello;  // what else a later version says is not for this one
}

void put(FieldWriter& out, const format::BaseCheckpoint& checkpoint) {
  out.digest(checkpoint.id).number(checkpoint.step);
}

format::BaseCheckpoint get_checkpoint(FieldReader& in) {
  format::BaseCheckpoint checkpoint;
  checkpoint.id = in.digest();
  checkpoint.step = in.number(max_step);
  return checkpoint;
}

void put(FieldWriter& out, const ReplicaShard& shard) {
  put_set(out, shard.set);
  out.number(shard.rank).text(shard.file).number(shard.size).digest(shard.digest);
}

ReplicaShard get_shard(FieldReader& in) {
  ReplicaShard shard;
  shard.set = get_set(in);
  if (shard.set.world_size == 0) throw Error(Errc::malformed, "a message has a set of no ranks");
  shard.rank = narrow(in.number(shard.set.world_size - 1));
  shard.file = get_name(in);
  shard.size = in.number(INT64_MAX);
  shard.digest = in.digest();
  return shard;
}

void put(FieldWriter& out, const Inventory& inventory) {
  out.number(inventory.is_store ? 1 : 0);
  put(out, inventory.unreadable);
  out.number(inventory.checkpoints.size());
  for (const ReplicaCheckpoint& entry : inventory.checkpoints) {
    put(out, entry.identity);
    out.number(entry.retired ? 1 : 0)
        .number(entry.marked ? 1 : 0)
        .number(entry.attempt)
        .number(entry.raw_bytes)
        .number(entry.stored_bytes);
    put(out, entry.bases);
  }
  out.number(inventory.shards.size());
  for (const ReplicaShard& shard : inventory.shards) put(out, shard);
}

Inventory get_inventory(FieldReader& in) {
  Inventory inventory;
  inventory.is_store = in.truth();
  inventory.unreadable = get_steps(in);
  inventory.checkpoints.resize(in.count(least_entry));
  for (ReplicaCheckpoint& entry : inventory.checkpoints) {
    entry.identity = get_checkpoint(in);
    entry.retired = in.truth();
    entry.marked = in.truth();
    entry.attempt = in.number();
    entry.raw_bytes = in.number();
    entry.stored_bytes = in.number();
    entry.bases = get_checkpoints(in);
  }
  inventory.shards.resize(in.count(least_shard));
  for (ReplicaShard& shard : inventory.shards) shard = get_shard(in);
  return inventory;
}

void put(FieldWriter& out, const std::vector<std::uint64_t>& steps) {
  out.number(steps.size());
  for (const std::uint64_t step : steps) out.number(step);
}

std::vector<std::uint64_t> get_steps(FieldReader& in) {
  std::vector<std::uint64_t> steps(in.count(8));
  for (std::uint64_t& step : steps) step = in.number(max_step);
  return steps;
}

void put(FieldWriter& out, const Removal& removal) {
  put(out, removal.removed);
  out.number(removal.refused.size());
  for (const Removal::Refused& refused : removal.refused) out.number(refused.step).text(refused.why);
}

Removal get_removal(FieldReader& in) {
  Removal removal{.removed = get_steps(in), .refused = {}};
  removal.refused.resize(in.count(8 + 4));
  for (Removal::Refused& refused : removal.refused) {
    refused.step = in.number(max_step);
    refused.why = in.text(longest_words);
  }
  return removal;
}

void put(FieldWriter& out, const FileName& file) {
  out.number(file.checkpoint ? 1 : 0);
  if (file.checkpoint) {
    put(out, *file.checkpoint);
    out.number(file.retired ? 1 : 0).number(file.other_form ? 1 : 0);
  } else {
    put_set(out, file.set);
  }
  out.text(file.file);
}

FileName get_file(FieldReader& in) {
  FileName file;
  if (in.truth()) {
    file.checkpoint = get_checkpoint(in);
    file.retired = in.truth();
    file.other_form = in.truth();
  } else {
    file.set = get_set(in);
  }
  file.file = get_name(in);
  return file;
}

void put(FieldWriter& out, const std::vector<format::BaseCheckpoint>& checkpoints) {
  out.number(checkpoints.size());
  for (const format::BaseCheckpoint& checkpoint : checkpoints) put(out, checkpoint);
}

std::vector<format::BaseCheckpoint> get_checkpoints(FieldReader& in) {
  std::vector<format::BaseCheckpoint> checkpoints(in.count(checkpoint_size));
  for (format::BaseCheckpoint& checkpoint : checkpoints) checkpoint = get_checkpoint(in);
  return checkpoints;
}

void put(FieldWriter& out, const FormRequest& request) {
  put(out, request.checkpoint);
  put(out, request.without);
  out.number(request.against ? 1 : 0);
  if (request.against) put(out, *request.against);
  out.number(request.most);
}

FormRequest get_form_request(FieldReader& in) {
  FormRequest request;
  request.checkpoint = get_checkpoint(in);
  request.without = get_checkpoints(in);
  if (in.truth()) request.against = get_checkpoint(in);
  request.most = in.number();
  return request;
}

void put(FieldWriter& out, const Offer& offer) {
  out.text(offer.manifest).number(offer.retired ? 1 : 0).number(offer.replace ? 1 : 0);
}

Offer get_offer(FieldReader& in) {
  Offer offer;
  offer.manifest = in.text(format::max_manifest_size);
  offer.retired = in.truth();
  offer.replace = in.truth();
  return offer;
}

void put(FieldWriter& out, const Error& error) {
  out.number(static_cast<std::uint64_t>(error.code())).text(error.what()).text(error.hint());
}

Error get_error(FieldReader& in, const std::string& peer) {
  const auto code = static_cast<Errc>(in.number(static_cast<std::uint64_t>(Errc::interrupted)));
  const std::string message = in.text(longest_words);
  const std::string hint = in.text(longest_words);
  // Its interruption isn't ours.
  return Error(code == Errc::interrupted ? Errc::busy : code, peer + ": " + message).with_hint(hint);
}

}  // namespace ckpt::transport

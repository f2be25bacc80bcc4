// SPDX-License-Identifier: Apache-2.0
#include "doors/redis_queue.hpp"

#include "doors/redis_scripts.hpp"

#include <algorithm>
#include <utility>

namespace ckpt::doors {
namespace {

std::string text_of(std::chrono::milliseconds time) { return std::to_string(time.count()); }

std::string text_of(const std::optional<std::uint64_t>& limit) { return limit ? std::to_string(*limit) : "-1"; }

std::uint64_t unsigned_number(const RedisValue& value) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(value.number(), 0));
}

std::vector<std::uint64_t> numbers_of(const RedisValue& list) {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(list.size());
  for (const RedisValue& each : list.items()) numbers.push_back(unsigned_number(each));
  return numbers;
}

/// The value of a line "NAME:VALUE" of INFO; empty if there's none.
std::string_view info_field(std::string_view info, std::string_view name) {
  for (std::size_t at = 0; at < info.size();) {
    const std::size_t end = std::min(info.find("\r\n", at), info.size());
    const std::string_view line = info.substr(at, end - at);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ':')
      return line.substr(name.size() + 1);
    at = end + 2;
  }
  return {};
}

}  // namespace

RedisValue RedisQueue::run(std::string_view script, const std::vector<std::string>& arguments) {
  const std::string whole = std::string(scripts::prelude) + std::string(script);
  std::vector<std::string_view> command = {"EVAL", whole, "1", name_};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return connection_.call(command);
}

std::string RedisQueue::announcement_key(const std::string& shard) const { return name_ + ":shard:" + shard; }

std::string RedisQueue::piece_key(const std::string& shard, std::uint64_t number) const {
  return announcement_key(shard) + ":" + std::to_string(number);
}

bool RedisQueue::reserve(const std::string& shard, std::uint64_t bytes, const QueueLimit& limit, Milliseconds lease) {
  return run(scripts::reserve,
             {shard, std::to_string(bytes), text_of(limit.bytes), text_of(limit.saves), text_of(lease)})
             .number() == 1;
}

void RedisQueue::send_piece(const std::string& shard, std::uint64_t number, const Digest& digest, ByteView bytes,
                            Milliseconds lease) {
  connection_.send({"SET", piece_key(shard, number)}, {digest.bytes, bytes}, {"NX", "PX", text_of(lease)});
}

void RedisQueue::renew(const std::string& shard, std::uint64_t pieces, Milliseconds lease) {
  (void)run(scripts::renew, {shard, std::to_string(pieces), text_of(lease)});
}

std::vector<std::uint64_t> RedisQueue::missing(const std::string& shard, std::uint64_t pieces) {
  return numbers_of(run(scripts::missing, {shard, std::to_string(pieces)}));
}

bool RedisQueue::announce(const std::string& shard, std::uint64_t pieces, std::uint64_t bytes, Milliseconds remembered,
                          ByteView announcement) {
  return run(scripts::announce, {shard, std::to_string(pieces), std::to_string(bytes), text_of(remembered),
                                 std::string(as_text(announcement))})
             .number() == 1;
}

void RedisQueue::forget_announcement(const std::string& shard) {
  (void)connection_.call({"UNLINK", name_ + ":announced:" + shard});
}

bool RedisQueue::withdraw(const std::string& shard, std::uint64_t pieces) {
  return run(scripts::withdraw, {shard, std::to_string(pieces)}).number() == 1;
}

std::optional<std::string> RedisQueue::take_outcome(const std::string& shard) {
  const std::string key = name_ + ":outcome:" + shard;
  const RedisValue value = connection_.call({"GET", key});
  if (value.is_nil()) return std::nullopt;
  (void)connection_.call({"UNLINK", key});
  return value.text();
}

Delivery RedisQueue::claim(const std::string& consumer, Milliseconds patience) {
  const RedisValue got = run(scripts::claim, {consumer, text_of(patience)});
  if (got.size() == 0) return {};
  if (got.size() == 1)
    return {.shard = std::nullopt, .refused = "the queue's entry " + got.at(0).text() + " names no shard"};
  return {.shard = QueuedShard{.entry = got.at(0).text(),
                               .shard = got.at(1).text(),
                               .deliveries = unsigned_number(got.at(2)),
                               .announcement_size = unsigned_number(got.at(3))},
          .refused = {}};
}

bool RedisQueue::keep(const QueuedShard& shard, const std::string& consumer) {
  return run(scripts::keep, {shard.entry, shard.shard, consumer}).number() == 1;
}

bool RedisQueue::is_there(const QueuedShard& shard) {
  return run(scripts::is_there, {shard.entry, shard.shard}).number() == 1;
}

bool RedisQueue::settle(const QueuedShard& shard, std::uint64_t pieces, const std::string& outcome,
                        Milliseconds outcome_kept) {
  return run(scripts::settle, {shard.entry, shard.shard, std::to_string(pieces), outcome, text_of(outcome_kept)})
             .number() == 1;
}

Failure RedisQueue::fail(const QueuedShard& shard, const std::string& consumer, const std::string& reason,
                         const std::string& outcome, Milliseconds outcome_kept) {
  const std::int64_t answer =
      run(scripts::fail, {shard.entry, shard.shard, consumer, reason, outcome, text_of(outcome_kept)}).number();
  if (answer == 0) return Failure::not_ours;
  return answer == 1 ? Failure::retried : Failure::buried;
}

void RedisQueue::bury(const QueuedShard& shard, const std::string& reason) {
  (void)run(scripts::bury, {shard.entry, shard.shard, reason});
}

void RedisQueue::give_back(const QueuedShard& shard, const std::string& consumer, Milliseconds idle) {
  (void)run(scripts::give_back, {shard.entry, shard.shard, consumer, text_of(idle)});
}

void RedisQueue::leave(const std::string& consumer) { (void)run(scripts::leave, {consumer}); }

QueueDepth RedisQueue::depth() {
  constexpr double milliseconds = 1e-3;
  const RedisValue got = run(scripts::depth, {});
  return {.saves = unsigned_number(got.at(0)),
          .bytes = redis_number(got.at(1).text()),
          .dead_letters = unsigned_number(got.at(2)),
          .oldest_seconds = static_cast<double>(got.at(3).number()) * milliseconds};
}

std::vector<std::string> persistence_warnings(RedisConnection& connection) {
  std::vector<std::string> warnings;
  const std::string where = "'" + connection.address().text() + "' ";
  const RedisValue persistence = connection.call({"INFO", "persistence"});
  if (info_field(persistence.text(), "aof_enabled") != "1")
    warnings.push_back(where + "keeps no append-only file: what it accepted is lost if it dies");
  const RedisValue memory = connection.call({"INFO", "memory"});
  if (info_field(memory.text(), "maxmemory") != "0" &&
      info_field(memory.text(), "maxmemory_policy").starts_with("allkeys"))
    warnings.push_back(where + "may evict what it accepted: set maxmemory-policy noeviction");
  return warnings;
}

}  // namespace ckpt::doors

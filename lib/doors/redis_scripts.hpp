// SPDX-License-Identifier: Apache-2.0
// The changes of a queue as Lua, which Redis runs one at a time. KEYS[1] is the queue's name; redis_queue.hpp says what
// its keys are. A script isn't undone if one of its commands fails, so what can fail comes first: a stream that is
// something else, and what needs memory in a full Redis, which only the first change of a script is refused for. Those
// that give memory back begin with that.
#pragma once

#include <string_view>

namespace ckpt::doors::scripts {

/// What the others call; it stands before each of them.
inline constexpr std::string_view prelude = R"lua(
local q = KEYS[1]
local function now()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end
local function announcement(id) return q .. ':shard:' .. id end
local function piece(id, n) return q .. ':shard:' .. id .. ':' .. n end
local function sweep()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', q .. ':uploads', '-inf', now(), 'LIMIT', 0, 100)) do
    redis.call('HDEL', q .. ':shards', id)
    redis.call('ZREM', q .. ':uploads', id)
  end
end
local function sum_of_shards()
  local sum, count = 0, 0
  for _, each in ipairs(redis.call('HVALS', q .. ':shards')) do
    local bytes = tonumber(each) or 0
    if bytes > 0 and bytes < 2 ^ 53 then sum = sum + bytes end
    count = count + 1
  end
  return sum, count
end
local function missing(id, pieces)
  local list = {}
  for n = 0, pieces - 1 do
    if redis.call('EXISTS', piece(id, n)) == 0 then list[#list + 1] = n end
  end
  return list
end
local function shard_of(fields)
  for i = 1, #fields, 2 do
    if fields[i] == 'shard' then return fields[i + 1] end
  end
  return ''
end
local function is_there(entry, id)
  local found = redis.call('XRANGE', q, entry, entry)
  return found[1] and shard_of(found[1][2]) == id
end
local function owner(entry)
  local pending = redis.pcall('XPENDING', q, 'ckpt', entry, entry, 1)
  if pending.err or not pending[1] then return '' end
  return pending[1][2]
end
local function remove_entry(entry)
  redis.pcall('XACK', q, 'ckpt', entry)
  redis.call('XDEL', q, entry)
end
local function tidy()
  if redis.call('EXISTS', q) == 1 and redis.call('XLEN', q) == 0 then redis.call('DEL', q) end
end
local function give_back(entry, idle)
  redis.call('XCLAIM', q, 'ckpt', '-', 0, entry, 'IDLE', idle, 'RETRYCOUNT', 0, 'JUSTID')
end
local function bury(entry, id, reason)
  remove_entry(entry)
  redis.call('HDEL', q .. ':shards', id)
  redis.call('HDEL', q .. ':failures', id)
  redis.call('XADD', q .. ':dead', '*', 'shard', id, 'reason', reason)
  tidy()
end
)lua";

/// id, bytes, limit of bytes, limit of saves (-1: none), lease
inline constexpr std::string_view reserve = R"lua(
local id, bytes, most_bytes, most_saves = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
sweep()
if redis.call('HEXISTS', q .. ':shards', id) == 0 then
  local sum, count = sum_of_shards()
  if count > 0 and ((most_bytes >= 0 and sum + bytes > most_bytes) or
                    (most_saves >= 0 and count + 1 > most_saves)) then
    return 0
  end
  redis.call('HSET', q .. ':shards', id, ARGV[2])
  redis.call('ZADD', q .. ':uploads', now() + tonumber(ARGV[5]), id)
end
return 1
)lua";

/// id, pieces, lease
inline constexpr std::string_view renew = R"lua(
local id = ARGV[1]
if redis.call('EXISTS', q .. ':announced:' .. id) == 1 then return 0 end
redis.call('ZADD', q .. ':uploads', 'XX', now() + tonumber(ARGV[3]), id)
for n = 0, tonumber(ARGV[2]) - 1 do redis.call('PEXPIRE', piece(id, n), ARGV[3]) end
return 1
)lua";

/// id, pieces
inline constexpr std::string_view missing = R"lua(
if redis.call('EXISTS', q .. ':announced:' .. ARGV[1]) == 1 then return {} end
return missing(ARGV[1], tonumber(ARGV[2]))
)lua";

/// id, pieces, bytes, how long it's remembered, announcement
inline constexpr std::string_view announce = R"lua(
local id, pieces = ARGV[1], tonumber(ARGV[2])
local marker = q .. ':announced:' .. id
if redis.call('EXISTS', marker) == 1 then return 1 end
if #missing(id, pieces) > 0 then return 0 end
redis.call('XADD', q, '*', 'shard', id)
for n = 0, pieces - 1 do redis.call('PERSIST', piece(id, n)) end
redis.call('SET', announcement(id), ARGV[5])
redis.call('HSET', q .. ':shards', id, ARGV[3])
redis.call('ZREM', q .. ':uploads', id)
redis.call('SET', marker, '1', 'PX', ARGV[4])
redis.pcall('XGROUP', 'CREATE', q, 'ckpt', '0')
return 1
)lua";

/// id, pieces
inline constexpr std::string_view withdraw = R"lua(
local id = ARGV[1]
if redis.call('EXISTS', q .. ':announced:' .. id) == 1 then return 0 end
for n = 0, tonumber(ARGV[2]) - 1 do redis.call('UNLINK', piece(id, n)) end
redis.call('HDEL', q .. ':shards', id)
redis.call('ZREM', q .. ':uploads', id)
return 1
)lua";

/// consumer, patience
inline constexpr std::string_view claim = R"lua(
sweep()
if redis.call('EXISTS', q) == 0 then return {} end
local found
local cursor = '0-0'
repeat
  local page = redis.pcall('XAUTOCLAIM', q, 'ckpt', ARGV[1], ARGV[2], cursor, 'COUNT', 1)
  if page.err then
    if not string.find(page.err, 'NOGROUP', 1, true) then return page end
    redis.call('XGROUP', 'CREATE', q, 'ckpt', '0')
    break
  end
  cursor = page[1]
  found = page[2][1]
until found or cursor == '0-0'
if not found then
  local fresh = redis.call('XREADGROUP', 'GROUP', 'ckpt', ARGV[1], 'COUNT', 1, 'STREAMS', q, '>')
  found = fresh and fresh[1] and fresh[1][2][1]
end
if not found then
  tidy()
  return {}
end
local entry, id = found[1], shard_of(found[2])
if #id ~= 32 or string.find(id, '[^0-9a-f]') then
  bury(entry, '', 'the entry ' .. entry .. ' names no shard')
  return {entry}
end
local pending = redis.call('XPENDING', q, 'ckpt', entry, entry, 1)
return {entry, id, pending[1][4], redis.call('STRLEN', announcement(id))}
)lua";

/// entry, id, consumer
inline constexpr std::string_view keep = R"lua(
if owner(ARGV[1]) ~= ARGV[3] or not is_there(ARGV[1], ARGV[2]) then return 0 end
redis.call('XCLAIM', q, 'ckpt', ARGV[3], 0, ARGV[1], 'JUSTID')
return 1
)lua";

/// entry, id
inline constexpr std::string_view is_there = R"lua(
return is_there(ARGV[1], ARGV[2]) and 1 or 0
)lua";

/// entry, id, pieces, outcome (empty: none), how long it's kept
inline constexpr std::string_view settle = R"lua(
local entry, id = ARGV[1], ARGV[2]
if not is_there(entry, id) then return 0 end
for n = 0, tonumber(ARGV[3]) - 1 do redis.call('UNLINK', piece(id, n)) end
redis.call('UNLINK', announcement(id))
redis.call('HDEL', q .. ':shards', id)
redis.call('HDEL', q .. ':failures', id)
if ARGV[4] ~= '' then redis.call('SET', q .. ':outcome:' .. id, ARGV[4], 'PX', ARGV[5]) end
remove_entry(entry)
tidy()
return 1
)lua";

/// entry, id, consumer, reason, outcome (empty: none), how long it's kept
inline constexpr std::string_view fail = R"lua(
local entry, id = ARGV[1], ARGV[2]
if owner(entry) ~= ARGV[3] or not is_there(entry, id) then return 0 end
give_back(entry, 86400000)
if redis.call('HINCRBY', q .. ':failures', id, 1) < 2 then return 1 end
bury(entry, id, ARGV[4])
if ARGV[5] ~= '' then redis.call('SET', q .. ':outcome:' .. id, ARGV[5], 'PX', ARGV[6]) end
return 2
)lua";

/// entry, id, reason
inline constexpr std::string_view bury = R"lua(
if is_there(ARGV[1], ARGV[2]) then bury(ARGV[1], ARGV[2], ARGV[3]) end
return 1
)lua";

/// entry, id, consumer, for how long it's taken to have been left alone already
inline constexpr std::string_view give_back = R"lua(
if owner(ARGV[1]) == ARGV[3] and is_there(ARGV[1], ARGV[2]) then give_back(ARGV[1], ARGV[4]) end
return 1
)lua";

/// consumer
inline constexpr std::string_view leave = R"lua(
local pending = redis.pcall('XPENDING', q, 'ckpt', '-', '+', 1, ARGV[1])
if not pending.err and #pending == 0 then redis.pcall('XGROUP', 'DELCONSUMER', q, 'ckpt', ARGV[1]) end
return 1
)lua";

inline constexpr std::string_view depth = R"lua(
local first = redis.call('XRANGE', q, '-', '+', 'COUNT', 1)
local age = 0
if first[1] then age = math.max(0, now() - tonumber(string.match(first[1][1], '^%d+'))) end
return {redis.call('XLEN', q), string.format('%.0f', (sum_of_shards())), redis.call('XLEN', q .. ':dead'), age}
)lua";

}  // namespace ckpt::doors::scripts

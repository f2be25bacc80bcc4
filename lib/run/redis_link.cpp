// SPDX-License-Identifier: Apache-2.0
#include "run/redis_link.hpp"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace ckpt::run {
namespace {

using doors::RedisTrouble;
using doors::RedisValue;
using nlohmann::json;

constexpr std::chrono::milliseconds between_rounds(100);
/// What nobody has touched for so long is no one's any more.
constexpr auto kept = std::chrono::milliseconds(std::chrono::hours(24));
/// So many leases long it can be seen that a job is over: by then all nodes have.
constexpr int over_leases = 3;

/// What the others call. Only the life that the lead was given to may decide, and only from what holds: one that was
/// away and comes back late changes nothing.
constexpr std::string_view prelude = R"lua(
local p, life = KEYS[1], ARGV[1]
local function job()
  local have = redis.call('HMGET', p .. ':job', 'generation', 'revision', 'state')
  return tonumber(have[1] or 0), tonumber(have[2] or 0), have[3] or ''
end
local function is_before(g, r, og, orev) return g < og or (g == og and r < orev) end
local function set_job(g, r, state, keep)
  redis.call('HSET', p .. ':job', 'generation', g, 'revision', r, 'state', state)
  redis.call('PEXPIRE', p .. ':job', keep)
  if tonumber(redis.call('GET', p .. ':generation') or 0) < tonumber(g) then
    redis.call('SET', p .. ':generation', g, 'PX', keep)
  end
end
local function leads() return redis.call('GET', p .. ':leader') == life end
)lua";

/// life, name, lease, state or '' (only a look), whether it may lead, generation and revision of the job that it knows,
/// that job or '', how long keys are kept. 'taken' if another has the name; else '1' if it leads, '0' if another does,
/// 'none'; the job; and to the one that leads all nodes.
constexpr std::string_view turn_script = R"lua(
local name, lease, state, may_lead = ARGV[2], ARGV[3], ARGV[4], ARGV[5] == '1'
local known_g, known_r, known, keep = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9]
local node = p .. ':node:' .. name
local held = redis.call('GET', node)
if held and string.sub(held, 1, #life + 1) ~= life .. ' ' then return {'taken'} end
if state ~= '' then
  redis.call('SET', node, life .. ' ' .. state, 'PX', lease)
  redis.call('SADD', p .. ':nodes', name)
  local leader = redis.call('GET', p .. ':leader')
  if may_lead and not leader then
    redis.call('SET', p .. ':leader', life, 'PX', lease)
  elseif may_lead and leader == life then
    redis.call('PEXPIRE', p .. ':leader', lease)
    redis.call('PEXPIRE', p .. ':nodes', keep)
    redis.call('PEXPIRE', p .. ':generation', keep)
    local _, _, at = job()
    if at ~= '' and redis.call('PTTL', p .. ':job') > keep / 2 then redis.call('PEXPIRE', p .. ':job', keep) end
  end
end
local g, r, at = job()
if known ~= '' and is_before(g, r, known_g, known_r) then
  set_job(known_g, known_r, known, keep)
  g, r, at = known_g, known_r, known
end
if g == known_g and r == known_r then at = '' end
local led = redis.call('EXISTS', p .. ':leader') == 1
local answer = {leads() and '1' or led and '0' or 'none', tostring(g), tostring(r), at}
if not leads() then return answer end
for _, other in ipairs(redis.call('SMEMBERS', p .. ':nodes')) do
  local there = redis.call('GET', p .. ':node:' .. other)
  if there then
    answer[#answer + 1] = string.sub(there, string.find(there, ' ', 1, true) + 1)
  else
    redis.call('SREM', p .. ':nodes', other)
  end
end
return answer
)lua";

/// life, base generation, base revision, generation, revision, state, how long it's kept
constexpr std::string_view decide_script = R"lua(
if not leads() then return 0 end
local g, r = job()
if g == tonumber(ARGV[4]) and r == tonumber(ARGV[5]) then return 1 end
if g ~= tonumber(ARGV[2]) or r ~= tonumber(ARGV[3]) then return 0 end
set_job(ARGV[4], ARGV[5], ARGV[6], ARGV[7])
return 1
)lua";

/// life, least, how long it's kept
constexpr std::string_view number_script = R"lua(
if not leads() then return 0 end
local n = math.max(tonumber(redis.call('GET', p .. ':generation') or 0), tonumber(ARGV[2]) - 1) + 1
redis.call('SET', p .. ':generation', string.format('%d', n), 'PX', ARGV[3])
return n
)lua";

/// life, name, whether its state goes, too
constexpr std::string_view leave_script = R"lua(
if leads() then redis.call('DEL', p .. ':leader') end
local held = redis.call('GET', p .. ':node:' .. ARGV[2])
if ARGV[3] == '1' and held and string.sub(held, 1, #life + 1) == life .. ' ' then
  redis.call('DEL', p .. ':node:' .. ARGV[2])
  redis.call('SREM', p .. ':nodes', ARGV[2])
end
return 1
)lua";

std::string text_of(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }
std::string text_of(std::chrono::milliseconds time) { return std::to_string(time.count()); }

std::int64_t nanoseconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

doors::RedisLimits limits_for(std::chrono::milliseconds lease) {
  const auto each =
      std::clamp<std::chrono::milliseconds>(lease / 4, std::chrono::milliseconds(500), std::chrono::milliseconds(5000));
  return {.connect = each, .answer = each};
}

}  // namespace

RedisLink::RedisLink(const RedisLinkSettings& settings, os::Fd socket)
    : settings_(settings),
      channel_(std::move(socket)),
      connection_(settings.address, settings.password, limits_for(settings.lease)),
      heard_(Clock::now()) {}

void RedisLink::run() {
  try {
    serve();
  } catch (const Error& error) {
    channel_.send({{"error", error.what()}, {"code", static_cast<int>(error.code())}});
  } catch (const std::exception& error) {
    channel_.send({{"error", error.what()}, {"code", static_cast<int>(Errc::io)}});
  }
}

void RedisLink::serve() {
  while (channel_.is_open()) {
    std::vector<pollfd> watched;
    channel_.add_to(watched);
    const auto now = Clock::now();
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(next_round_ - now, Clock::duration(0)));
    (void)::poll(watched.data(), watched.size(), static_cast<int>(wait.count()));
    for (const json& line : channel_.receive()) take(line);
    channel_.flush();
    if (!channel_.is_open()) return;
    const bool is_urgent = contact_since_ && !is_taken_ && is_supervised(Clock::now()) &&
                           ((is_changed_ && !state_.is_null()) || decision_ || least_number_);
    if (leaves_ || is_urgent || Clock::now() >= next_round_) round();
    if (leaves_) return;
  }
}

void RedisLink::take(const json& line) {
  heard_ = Clock::now();
  if (line.contains("state")) {
    const json& state = line.at("state");
    is_changed_ |= line.value("urgent", false);
    state_ = state;
  }
  if (line.contains("decide")) {
    const json& base = line.at("base");
    // What is decided before the last one has got there replaces it.
    if (!decision_)
      decision_ = Decision{.base_generation = base.at(0).get<std::uint64_t>(),
                           .base_revision = base.at(1).get<std::uint64_t>(),
                           .job = {}};
    decision_->job = job_state_from(line.at("decide"));
  }
  if (line.contains("know")) {
    job_ = job_state_from(line.at("know"));
    has_told_job_ = true;
  }
  if (line.contains("number")) least_number_ = line.at("number").get<std::uint64_t>();
  if (line.contains("leave")) {
    leaves_ = true;
    forgets_ = line.value("forget", false);
  }
}

bool RedisLink::is_supervised(Clock::time_point now) const { return now - heard_ < settings_.lease / 2; }

std::string RedisLink::state_text() const {
  json state = state_;
  if (state.at("address").get<std::string>().empty()) state["address"] = connection_.local_address();
  return text_of(state);
}

void RedisLink::round() {
  const auto now = Clock::now();
  next_round_ = now + between_rounds;
  try {
    connection_.open();
    turn(now);
    decide();
    number();
    if (leaves_) leave();
    if (!contact_since_) {
      contact_since_ = now;
      channel_.send({{"contact_since", nanoseconds(now)}});
    }
  } catch (const RedisTrouble& trouble) {
    connection_.close();
    next_round_ = Clock::now() + between_rounds;
    // The next contact is one with a Redis that may have been away, and so may have lost who is there.
    contact_since_.reset();
    next_renewal_ = {};
    channel_.send({{"lost", trouble.what()}});
  }
}

void RedisLink::turn(Clock::time_point now) {
  // For one that doesn't live nothing is renewed.
  const bool renews = !state_.is_null() && is_supervised(now) && (is_changed_ || now >= next_renewal_);
  const bool may_lead = renews && !leaves_ && state_.at("trouble").get<std::string>().empty();
  // One that's over is forgotten by Redis, and stays so.
  const bool restores = renews && job_ && job_->phase != JobPhase::over;
  const auto answer = call(
      turn_script, {settings_.life, settings_.name, text_of(settings_.lease), renews ? state_text() : "",
                    may_lead ? "1" : "0", std::to_string(job_ ? job_->generation : 0),
                    std::to_string(job_ ? job_->revision : 0), restores ? text_of(to_json(*job_)) : "", text_of(kept)});
  if (renews) {
    is_changed_ = false;
    next_renewal_ = now + settings_.lease / 4;
  }
  take_answer(answer, now, may_lead);
}

void RedisLink::take_answer(const RedisValue& answer, Clock::time_point asked, bool renews_lead) {
  const bool is_taken = answer.at(0).text() == "taken";
  if (is_taken != std::exchange(is_taken_, is_taken)) channel_.send({{"taken", is_taken}});
  if (is_taken) return;
  take_job(answer);
  if (answer.at(0).text() != "1") {
    nodes_text_.clear();
    if (answer.at(0).text() == "none") next_renewal_ = {};
    channel_.send({{"leads_until", 0}});
    return;
  }
  // By this clock the lease ends sooner than by Redis', which began to count later.
  if (renews_lead) channel_.send({{"leads_until", nanoseconds(asked + settings_.lease * 9 / 10)}});
  json nodes = json::array();
  for (std::size_t i = 4; i < answer.size(); ++i) {
    json node = json::parse(answer.at(i).text(), nullptr, false);
    if (node.is_object()) nodes.push_back(std::move(node));
  }
  const std::string text = text_of(nodes);
  if (text != std::exchange(nodes_text_, text)) channel_.send({{"nodes", std::move(nodes)}});
}

void RedisLink::take_job(const RedisValue& answer) {
  const std::string& text = answer.at(3).text();
  if (!text.empty()) {
    const json value = json::parse(text, nullptr, false);
    JobState job = job_state_from(value);
    // Redis has lost what came after it, and gets it back.
    if (job_ && job.is_before(*job_)) {
      next_renewal_ = {};
      return;
    }
    // The end of one that this node had no part in: the next begins once that's forgotten.
    if (!job_ && job.phase == JobPhase::over) return;
    job_ = std::move(job);
    has_told_job_ = false;
  }
  if (!job_ && (answer.at(1).text() != "0" || answer.at(2).text() != "0")) return;
  if (!job_) job_ = JobState{};
  if (!std::exchange(has_told_job_, true)) channel_.send({{"job", to_json(*job_)}});
}

void RedisLink::decide() {
  if (!decision_) return;
  const JobState& job = decision_->job;
  const auto keep = job.phase == JobPhase::over ? settings_.lease * over_leases : kept;
  const bool is_taken = call(decide_script, {settings_.life, std::to_string(decision_->base_generation),
                                             std::to_string(decision_->base_revision), std::to_string(job.generation),
                                             std::to_string(job.revision), text_of(to_json(job)), text_of(keep)})
                            .number() == 1;
  if (is_taken) {
    job_ = job;
    channel_.send({{"job", to_json(job)}});
  } else {
    channel_.send({{"rejected", true}});
  }
  decision_.reset();
}

void RedisLink::number() {
  if (!least_number_) return;
  const auto number = call(number_script, {settings_.life, std::to_string(*least_number_), text_of(kept)}).number();
  if (number > 0) channel_.send({{"number", number}});
  least_number_.reset();
}

void RedisLink::leave() { (void)call(leave_script, {settings_.life, settings_.name, forgets_ ? "1" : "0"}); }

RedisValue RedisLink::call(std::string_view script, const std::vector<std::string>& arguments) {
  const std::string whole = std::string(prelude) + std::string(script);
  std::vector<std::string_view> command = {"EVAL", whole, "1", settings_.address.key};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return connection_.call(command);
}

}  // namespace ckpt::run

// SPDX-License-Identifier: Apache-2.0
#include "store/verify_records.hpp"

#include "format/damaged.hpp"
#include "format/rfc3339.hpp"
#include "format/sealed_json.hpp"
#include "os/fd.hpp"
#include "os/small_file.hpp"

#include <unistd.h>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace ckpt::store {
namespace {

constexpr std::string_view good_suffix = ".good.json";
constexpr std::string_view damaged_suffix = ".damaged.json";
constexpr std::uint64_t max_state_size = 64U << 20U;
constexpr std::string_view state_format = "ckpt-verify-state";

std::string base_name(std::uint64_t step, const Digest& id) { return step_name(step) + "-" + to_hex(id).substr(0, 8); }

nlohmann::ordered_json encode_record(const VerifyRecord& record) {
  return {{"format", "ckpt-verify-record"}, {"step", record.step},
          {"id", to_hex(record.id)},        {"result", record.verdict == Verdict::good ? "good" : "damaged"},
          {"level", record.level},          {"time", format::rfc3339(record.when)},
          {"found", record.found}};
}

/// Throws what the JSON library throws.
VerifyRecord decode_record(const nlohmann::ordered_json& object) {
  return {.step = object.at("step").get<std::uint64_t>(),
          .id = digest_from_hex(object.at("id").get<std::string>()).value_or(Digest{}),
          .verdict = object.at("result") == "good" ? Verdict::good : Verdict::damaged,
          .level = object.at("level").get<std::string>(),
          .when = format::from_rfc3339(object.at("time").get<std::string>()).value_or(0),
          .found = object.at("found").get<std::vector<std::string>>()};
}

VerifyCursor decode_cursor(const nlohmann::ordered_json& object) {
  return {.step = object.at("step").get<std::uint64_t>(),
          .id = digest_from_hex(object.at("id").get<std::string>()).value_or(Digest{}),
          .rank = object.at("rank").get<std::uint32_t>(),
          .position = object.at("position").get<std::uint64_t>(),
          .damaged = object.at("damaged").get<bool>()};
}

/// A record that can't be believed is as good as none.
std::optional<nlohmann::ordered_json> read_object(const std::string& path) {
  const auto text = os::read_small_file(path, max_state_size);
  if (!text) return std::nullopt;
  try {
    return format::unseal(*text, path);
  } catch (const format::Damaged&) {
    return std::nullopt;
  }
}

bool is_read_only(const Error& error) {
  return error.system_errno() == EROFS || error.system_errno() == EACCES || error.system_errno() == EPERM;
}

}  // namespace

bool write_record(const Store& store, const VerifyRecord& record) {
  const std::string base = store.records() + "/" + base_name(record.step, record.id);
  const bool good = record.verdict == Verdict::good;
  try {
    os::make_directory(store.records());
    os::publish_small_file(base + std::string(good ? good_suffix : damaged_suffix), format::seal(encode_record(record)),
                           os::Publish::replace, store.records());
  } catch (const Error& error) {
    if (is_read_only(error)) return false;
    throw;
  }
  const std::string other = base + std::string(good ? damaged_suffix : good_suffix);
  if (::unlink(other.c_str()) != 0 && errno != ENOENT) os::throw_errno(errno, "cannot remove '" + other + "'");
  return true;
}

void remove_records(const Store& store, std::uint64_t step, const Digest& id) {
  const std::string base = store.records() + "/" + base_name(step, id);
  for (const std::string_view suffix : {good_suffix, damaged_suffix}) {
    const std::string path = base + std::string(suffix);
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) os::throw_errno(errno, "cannot remove '" + path + "'");
  }
}

Verdicts read_verdicts(const Store& store) {
  Verdicts verdicts;
  for (const std::string& name : os::list_directory(store.records()).value_or(std::vector<std::string>{})) {
    const bool good = name.ends_with(good_suffix);
    if (!good && !name.ends_with(damaged_suffix)) continue;
    const std::string base = name.substr(0, name.find('.'));
    const auto step = parse_step_name(base.substr(0, base.find('-')));
    if (!step || base.size() != step_name(*step).size() + 9) continue;
    const auto [it, is_new] =
        verdicts.emplace(std::pair(*step, base.substr(base.size() - 8)), good ? Verdict::good : Verdict::damaged);
    // Both are there only if a writer died between the two: then the worse one is believed.
    if (!is_new && !good) it->second = Verdict::damaged;
  }
  return verdicts;
}

std::optional<Verdict> verdict_of(const Verdicts& verdicts, std::uint64_t step, const Digest& id) {
  const auto it = verdicts.find({step, to_hex(id).substr(0, 8)});
  return it == verdicts.end() ? std::nullopt : std::optional(it->second);
}

bool is_damaged_deeply(const Store& store, const format::Manifest& manifest) {
  const std::string path = store.records() + "/" + base_name(manifest.step, manifest.id) + std::string(damaged_suffix);
  const auto object = read_object(path);
  return object && object->contains("level") && object->at("level") == "deep";
}

std::string state_path(const Store& store) { return store.records() + "/state.json"; }

VerifyState read_state(const std::string& path) {
  // A state only says where to go on and what was found: a bad one costs a start from the beginning.
  const auto object = read_object(path);
  if (!object) return {};
  try {
    if (object->at("format") != state_format) return {};
    VerifyState state;
    if (object->contains("cursor")) state.cursor = decode_cursor(object->at("cursor"));
    for (const auto& record : object->at("records")) state.records.push_back(decode_record(record));
    return state;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

void require_state_file(const std::string& path) {
  const auto text = os::read_small_file(path, max_state_size);
  if (!text || text->empty() || (format::is_sealed(*text) && text->find(state_format) != std::string::npos)) return;
  throw Error(Errc::exists, "'" + path + "' is there and not the state of a verify").with_hint("choose another file");
}

void write_state(const std::string& path, const VerifyState& state) {
  nlohmann::ordered_json object = {{"format", state_format}};
  if (state.cursor) {
    object["cursor"] = {{"step", state.cursor->step},
                        {"id", to_hex(state.cursor->id)},
                        {"rank", state.cursor->rank},
                        {"position", state.cursor->position},
                        {"damaged", state.cursor->damaged}};
  }
  object["records"] = nlohmann::ordered_json::array();
  for (const VerifyRecord& record : state.records) object["records"].push_back(encode_record(record));
  os::publish_small_file(path, format::seal(object), os::Publish::replace, os::parent_of(path));
}

}  // namespace ckpt::store

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
constexpr std::uint64_t max_cursor_size = 65536;

std::string base_name(std::uint64_t step, const Digest& id) { return step_name(step) + "-" + to_hex(id).substr(0, 8); }

bool is_read_only(const Error& error) {
  return error.system_errno() == EROFS || error.system_errno() == EACCES || error.system_errno() == EPERM;
}

}  // namespace

bool write_record(const Store& store, const VerifyRecord& record) {
  nlohmann::ordered_json object = {
      {"format", "ckpt-verify-record"}, {"step", record.step},
      {"id", to_hex(record.id)},        {"result", record.verdict == Verdict::good ? "good" : "damaged"},
      {"level", record.level},          {"time", format::rfc3339(record.when)},
      {"found", record.found}};
  const std::string base = store.records() + "/" + base_name(record.step, record.id);
  const bool good = record.verdict == Verdict::good;
  try {
    os::make_directory(store.records());
    os::publish_small_file(base + std::string(good ? good_suffix : damaged_suffix), format::seal(object),
                           os::Publish::replace, store.records());
  } catch (const Error& error) {
    if (is_read_only(error)) return false;
    throw;
  }
  const std::string other = base + std::string(good ? damaged_suffix : good_suffix);
  if (::unlink(other.c_str()) != 0 && errno != ENOENT) os::throw_errno(errno, "cannot remove '" + other + "'");
  return true;
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

std::string cursor_path(const Store& store) { return store.records() + "/cursor.json"; }

std::optional<VerifyCursor> read_cursor(const std::string& path) {
  const auto text = os::read_small_file(path, max_cursor_size);
  if (!text || text->empty()) return std::nullopt;
  // A cursor only says where to go on: a bad one costs a start from the beginning.
  if (!format::is_sealed(*text)) return std::nullopt;
  const auto object = nlohmann::json::parse(*text, nullptr, false);
  if (!object.is_object() || !object.contains("step")) return std::nullopt;
  try {
    if (object.value("format", "") != "ckpt-verify-cursor") return std::nullopt;
    const auto id = digest_from_hex(object.value("id", ""));
    if (!id) return std::nullopt;
    return VerifyCursor{.step = object.value("step", std::uint64_t{0}),
                        .id = *id,
                        .rank = object.value("rank", std::uint32_t{0}),
                        .position = object.value("position", std::uint64_t{0}),
                        .damaged = object.value("damaged", false)};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;  // a member of another type
  }
}

void write_cursor(const std::string& path, const std::optional<VerifyCursor>& cursor) {
  nlohmann::ordered_json object = {{"format", "ckpt-verify-cursor"}};
  if (cursor) {
    object["step"] = cursor->step;
    object["id"] = to_hex(cursor->id);
    object["rank"] = cursor->rank;
    object["position"] = cursor->position;
    object["damaged"] = cursor->damaged;
  }
  os::publish_small_file(path, format::seal(object), os::Publish::replace, os::parent_of(path));
}

}  // namespace ckpt::store

// SPDX-License-Identifier: Apache-2.0
#include "doors/ticket.hpp"

#include "core/percent_text.hpp"
#include "format/constants.hpp"
#include "format/json_fields.hpp"
#include "format/sealed_json.hpp"
#include "os/small_file.hpp"

#include <ckpt/address.hpp>

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

namespace ckpt::doors {
namespace {

constexpr const char* ticket_format = "ckpt-ticket";

template <class T, std::size_t N>
using Names = std::array<std::pair<const char*, T>, N>;

constexpr Names<Encode, 3> encode_names = {{{"raw", Encode::raw}, {"fast", Encode::fast}, {"best", Encode::best}}};
constexpr Names<BaseChoice, 3> base_names = {
    {{"auto", BaseChoice::automatic}, {"none", BaseChoice::none}, {"step", BaseChoice::step}}};

template <class T, std::size_t N>
const char* name_in(const Names<T, N>& names, T wanted) {
  for (const auto& [name, value] : names) {
    if (value == wanted) return name;
  }
  return "";
}

template <class T, std::size_t N>
T choice(const Names<T, N>& names, const format::JsonFields& fields, const char* key) {
  const std::string text = fields.text(key);
  for (const auto& [name, value] : names) {
    if (text == name) return value;
  }
  fields.fail(std::string("field '") + key + "' is none that is known");
}

std::vector<std::string> find_implied(const std::vector<source::TreeEntry>& entries) {
  std::set<std::string_view> named;
  std::set<std::string> implied;
  for (const source::TreeEntry& entry : entries) {
    const std::string& path = entry.file.path;
    for (std::size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
      const std::string above = path.substr(0, slash);
      if (!named.contains(above)) implied.insert(above);
    }
    named.insert(path);
  }
  return {implied.begin(), implied.end()};
}

}  // namespace

std::int64_t now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

Ticket make_ticket(const SaveOptions& save, const std::vector<source::TreeEntry>& entries) {
  Ticket ticket{.save = save,
                .created_ns = now_ns(),
                .host = os::host_name(),
                .files = entries.size(),
                .raw_bytes = 0,
                .implied_directories = find_implied(entries)};
  for (const source::TreeEntry& entry : entries) ticket.raw_bytes += entry.file.size;
  return ticket;
}

std::string encode_ticket(const Ticket& ticket) {
  const SaveOptions& save = ticket.save;
  nlohmann::ordered_json object = format::json_head(ticket_format);
  object["step"] = save.step;
  object["rank"] = save.rank;
  object["world_size"] = save.world_size;
  if (save.attempt) object["attempt"] = *save.attempt;
  if (save.resumed_from) object["resumed_from"] = *save.resumed_from;
  object["created_ns"] = ticket.created_ns;
  object["host"] = ticket.host;
  object["files"] = ticket.files;
  object["raw_bytes"] = ticket.raw_bytes;
  object["create"] = save.create;
  object["read_back"] = save.read_back;
  object["replace"] = save.replace;
  object["owner"] = save.owner;
  object["allow_malformed"] = save.allow_malformed;
  object["encode"] = name_in(encode_names, save.encode);
  object["base"] = name_in(base_names, save.base);
  object["base_step"] = save.base_step;
  object["check"] = save.check;
  if (save.fixed_time) object["fixed_time"] = *save.fixed_time;
  object["implied_directories"] = nlohmann::ordered_json::array();
  for (const std::string& path : ticket.implied_directories) {
    object["implied_directories"].push_back(percent_encode(path));
  }
  object["meta"] = nlohmann::ordered_json::object();
  for (const auto& [key, value] : save.meta) object["meta"][key] = value;
  return format::seal(object);
}

Ticket decode_ticket(std::string_view text, const std::string& name) {
  const nlohmann::ordered_json object = format::unseal(text, name);
  const format::JsonFields fields(object, name);
  (void)fields.check_version(ticket_format);
  Ticket ticket;
  SaveOptions& save = ticket.save;
  save.step = fields.number("step", max_step);
  save.world_size = static_cast<std::uint32_t>(fields.number("world_size", format::max_world_size));
  if (save.world_size == 0) fields.fail("field 'world_size' is zero");
  save.rank = static_cast<std::uint32_t>(fields.number("rank", save.world_size - 1));
  save.attempt = fields.number_if_there("attempt");
  save.resumed_from = fields.number_if_there("resumed_from");
  ticket.created_ns = fields.integer("created_ns");
  ticket.host = fields.text("host");
  ticket.files = fields.number("files");
  ticket.raw_bytes = fields.number("raw_bytes");
  save.create = fields.truth("create");
  save.read_back = fields.truth("read_back");
  save.replace = fields.truth("replace");
  save.owner = fields.truth("owner");
  save.allow_malformed = fields.truth("allow_malformed");
  save.encode = choice(encode_names, fields, "encode");
  save.base = choice(base_names, fields, "base");
  save.base_step = fields.number("base_step", max_step);
  save.check = fields.truth("check");
  if (fields.has("fixed_time")) save.fixed_time = fields.integer("fixed_time");
  save.meta = fields.texts("meta");
  for (const std::string& encoded : fields.list_of_texts("implied_directories")) {
    const auto path = percent_decode(encoded);
    if (!path || !format::is_safe_path(*path)) fields.fail("an implied directory would leave the tree");
    ticket.implied_directories.push_back(*path);
  }
  return ticket;
}

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
#include "format/json_fields.hpp"

#include "format/constants.hpp"
#include "format/damaged.hpp"
#include "format/ends.hpp"

#include <nlohmann/json.hpp>

namespace ckpt::format {

using OrderedJson = nlohmann::ordered_json;

OrderedJson json_head(const char* format, std::uint64_t incompat) {
  return {{"format", format},
          {"version", {major_version, minor_version}},
          {"compat", 0U},
          {"ro_compat", 0U},
          {"incompat", incompat}};
}

JsonFields::JsonFields(const OrderedJson& object, const std::string& name) : object_(&object), name_(&name) {
  if (!object.is_object()) fail("a record is not an object");
}

void JsonFields::fail(const std::string& why) const {
  throw Damaged(DamageKind::altered, 0, 0, "'" + *name_ + "': " + why);
}

bool JsonFields::has(const char* key) const { return object_->contains(key); }

const OrderedJson& JsonFields::at(const char* key) const {
  const auto it = object_->find(key);
  if (it == object_->end()) fail(std::string("field '") + key + "' is missing");
  return *it;
}

std::uint64_t JsonFields::number(const char* key, std::uint64_t most) const {
  const OrderedJson& value = at(key);
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most) {
    fail(std::string("field '") + key + "' is not a number in its range");
  }
  return value.get<std::uint64_t>();
}

std::optional<std::uint64_t> JsonFields::number_if_there(const char* key) const {
  if (!has(key)) return std::nullopt;
  return number(key);
}

std::int64_t JsonFields::integer(const char* key) const {
  const OrderedJson& value = at(key);
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX)) {
    fail(std::string("field '") + key + "' is not a number in its range");
  }
  return value.get<std::int64_t>();
}

bool JsonFields::truth(const char* key) const {
  const OrderedJson& value = at(key);
  if (!value.is_boolean()) fail(std::string("field '") + key + "' is neither true nor false");
  return value.get<bool>();
}

std::string JsonFields::text(const char* key) const {
  const OrderedJson& value = at(key);
  if (!value.is_string()) fail(std::string("field '") + key + "' is not a text");
  return value.get<std::string>();
}

Digest JsonFields::digest(const char* key) const {
  const auto digest = digest_from_hex(text(key));
  if (!digest) fail(std::string("field '") + key + "' is not a digest");
  return *digest;
}

std::vector<std::string> JsonFields::list_of_texts(const char* key) const {
  std::vector<std::string> values;
  if (!at(key).is_array()) fail(std::string("field '") + key + "' is not a list");
  for (const OrderedJson& value : at(key)) {
    if (!value.is_string()) fail(std::string("field '") + key + "' is not a list of texts");
    values.push_back(value.get<std::string>());
  }
  return values;
}

std::map<std::string, std::string> JsonFields::texts(const char* key) const {
  std::map<std::string, std::string> values;
  if (!has(key)) return values;
  if (!at(key).is_object()) fail(std::string("field '") + key + "' is not an object");
  for (const auto& [name, value] : at(key).items()) {
    if (!value.is_string()) fail(std::string("field '") + key + "." + name + "' is not a text");
    values[name] = value.get<std::string>();
  }
  return values;
}

std::string JsonFields::check_version(const char* format) const {
  if (text("format") != format) fail(std::string("is not a ") + format);
  const OrderedJson& version = at("version");
  if (!version.is_array() || version.size() != 2 || !version[0].is_number_unsigned())
    fail("field 'version' is not a pair");
  require_known(version[0].get<std::uint64_t>(),
                {.compat = number("compat"), .ro_compat = number("ro_compat"), .incompat = number("incompat")}, false,
                *name_);
  if (!version[1].is_number_unsigned()) fail("field 'version' is not a pair");
  if (version[1].get<std::uint64_t>() > minor_version) return "a newer version of ckpt wrote it";
  if ((number("ro_compat") & ~known_ro_compat) != 0) return "it uses a feature that this version can only read";
  return {};
}

}  // namespace ckpt::format

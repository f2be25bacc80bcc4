// SPDX-License-Identifier: Apache-2.0
// How each kind of value looks in tsv and in JSON.
#include "cli/record.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "cli/text_escape.hpp"

namespace ckpt::cli {
namespace {

// The overloads of an if-else chain over the variant's alternatives.
template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

void append_member(std::string& out, std::string_view key, std::string_view value) {
  if (out.back() != '{') out += ',';
  append_json_string(out, key);
  out += ':';
  append_json_string(out, value);
  if (is_utf8(value)) return;
  out += ',';
  append_json_string(out, std::string(key) + "_b64");
  out += ':';
  append_json_string(out, base64(value));
}

std::string json_object(const std::map<std::string, std::string>& map) {
  std::string out = "{";
  for (const auto& [key, value] : map) append_member(out, key, value);
  return out + "}";
}

std::string json_value(const FieldValue& value) {
  return std::visit(Overload{
                        [](std::monostate) { return std::string("null"); },
                        [](bool flag) { return std::string(flag ? "true" : "false"); },
                        [](double number) {
                          const std::string text = number_text(number);
                          return std::isfinite(number) ? text : '"' + text + '"';
                        },
                        [](const std::string&) { return std::string(); },  // written by append_member()
                        [](const std::vector<std::int64_t>& list) { return fmt::format("[{}]", fmt::join(list, ",")); },
                        [](const std::map<std::string, std::string>& map) { return json_object(map); },
                        [](auto integer) { return std::to_string(integer); },
                    },
                    value);
}

}  // namespace

FieldValue text_or_none(std::string text) {
  if (text.empty()) return std::monostate{};
  return text;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return fmt::format("{}", value);
}

std::string plain_text(const FieldValue& value) {
  return std::visit(Overload{
                        [](std::monostate) { return std::string(); },
                        [](bool flag) { return std::string(flag ? "true" : "false"); },
                        [](double number) { return number_text(number); },
                        [](const std::string& text) { return text; },
                        [](const std::vector<std::int64_t>& list) { return fmt::format("{}", fmt::join(list, ",")); },
                        [](const std::map<std::string, std::string>& map) { return json_object(map); },
                        [](auto integer) { return std::to_string(integer); },
                    },
                    value);
}

std::string tsv_line(const Record& record, bool escape) {
  std::string out;
  for (const Field& field : record.fields) {
    if (&field != &record.fields.front()) out += '\t';
    const std::string text = plain_text(field.value);
    out += escape ? tsv_escaped(text) : text;
  }
  return out;
}

std::string json_line(const Record& record) {
  std::string out = "{";
  append_member(out, "type", record.type);
  for (const Field& field : record.fields) {
    if (const auto* text = std::get_if<std::string>(&field.value)) {
      append_member(out, field.key, *text);
      continue;
    }
    out += ',';
    append_json_string(out, field.key);
    out += ':';
    out += json_value(field.value);
  }
  return out + "}";
}

}  // namespace ckpt::cli

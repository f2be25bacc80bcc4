// SPDX-License-Identifier: Apache-2.0
#include "doors/outcome.hpp"

#include "format/damaged.hpp"
#include "format/json_fields.hpp"
#include "format/sealed_json.hpp"

#include <array>
#include <nlohmann/json.hpp>

namespace ckpt::doors {
namespace {

constexpr std::size_t max_reason = 4096;
constexpr std::array known_states = {SaveState::written, SaveState::durable, SaveState::verified, SaveState::skipped,
                                     SaveState::failed};

}  // namespace

std::string encode_outcome(const Outcome& outcome) {
  nlohmann::ordered_json object;
  object["state"] = to_string(outcome.state);
  if (!outcome.id.empty()) object["id"] = outcome.id;
  if (!outcome.reason.empty()) object["reason"] = outcome.reason.substr(0, max_reason);
  return format::seal(object);
}

Outcome decode_outcome(std::string_view text, const std::string& name) {
  const nlohmann::ordered_json object = format::unseal(text, name);
  const format::JsonFields fields(object, name);
  const std::string state = fields.text("state");
  for (const SaveState known : known_states) {
    if (state != to_string(known)) continue;
    return {.state = known,
            .id = fields.has("id") ? fields.text("id") : "",
            .reason = fields.has("reason") ? fields.text("reason") : ""};
  }
  fields.fail("field 'state' is none that is known");
}

}  // namespace ckpt::doors

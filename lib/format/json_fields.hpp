// SPDX-License-Identifier: Apache-2.0
// What every JSON document of a store has in common: its head, and fields that are checked while they're read. Each
// failure names the document and the field.
#pragma once

#include "core/digest.hpp"

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::format {

/// Format, version and flags: the first members of a document.
[[nodiscard]] nlohmann::ordered_json json_head(const char* format, std::uint64_t incompat = 0);

/// Reads one object of a document. Both arguments are borrowed. Throws Damaged unless said otherwise.
class JsonFields {
 public:
  JsonFields(const nlohmann::ordered_json& object, const std::string& name);

  [[noreturn]] void fail(const std::string& why) const;
  [[nodiscard]] bool has(const char* key) const;
  [[nodiscard]] const nlohmann::ordered_json& at(const char* key) const;
  [[nodiscard]] std::uint64_t number(const char* key, std::uint64_t most = UINT64_MAX) const;
  [[nodiscard]] std::optional<std::uint64_t> number_if_there(const char* key) const;
  [[nodiscard]] std::int64_t integer(const char* key) const;
  [[nodiscard]] bool truth(const char* key) const;
  [[nodiscard]] std::string text(const char* key) const;
  [[nodiscard]] Digest digest(const char* key) const;
  [[nodiscard]] std::vector<std::string> list_of_texts(const char* key) const;
  /// Empty if the field isn't there.
  [[nodiscard]] std::map<std::string, std::string> texts(const char* key) const;

  /// Returns why the document may only be read, or nothing. Throws unsupported for what this version doesn't know.
  [[nodiscard]] std::string check_version(const char* format) const;

 private:
  const nlohmann::ordered_json* object_;
  const std::string* name_;
};

}  // namespace ckpt::format

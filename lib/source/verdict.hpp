// SPDX-License-Identifier: Apache-2.0
// How a parser ends. What a verdict means for the file depends on its name, which only parse() looks at.
#pragma once

#include "source/pickle_reader.hpp"
#include "source/zip_directory.hpp"

#include <string>
#include <utility>

namespace ckpt::source {

struct Verdict {
  enum class Kind {
    fine,
    foreign,    ///< begins like this kind, but is something else
    malformed,  ///< cut short or altered
    refused,    ///< a limit is exceeded
  };
  Kind kind = Kind::fine;
  std::string message;  ///< one line; empty if fine

  [[nodiscard]] bool is_fine() const { return kind == Kind::fine; }
  [[nodiscard]] static Verdict foreign(std::string what) { return {Kind::foreign, std::move(what)}; }
  [[nodiscard]] static Verdict malformed(std::string what) { return {Kind::malformed, std::move(what)}; }
  [[nodiscard]] static Verdict refused(std::string what) { return {Kind::refused, std::move(what)}; }
};

[[nodiscard]] inline Verdict verdict_of(ZipResult&& zip) {
  switch (zip.status) {
    case ZipStatus::complete: return {};
    case ZipStatus::refused: return Verdict::refused(std::move(zip.message));
    default: return Verdict::malformed(std::move(zip.message));
  }
}

/// `where` names the pickle, `offset` is where in the file it starts.
[[nodiscard]] inline Verdict verdict_of(const PickleResult& result, const std::string& where, std::uint64_t offset) {
  const std::string at = ", at offset " + std::to_string(offset + result.end);
  switch (result.status) {
    case PickleStatus::complete: return {};
    case PickleStatus::refused: return Verdict::refused(where + " is kept as it is: " + result.message);
    case PickleStatus::cut_short:
      return Verdict::malformed("cut short: " + where + " isn't complete: " + result.message + at);
    default: return Verdict::malformed("altered: " + where + " is no pickle: " + result.message + at);
  }
}

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// Out-of-line members of the public types, so that their type information lives in the library alone.
#include <ckpt/error.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/state.hpp>
#include <ckpt/version.hpp>

#include <utility>

namespace ckpt {

Error::Error(Errc code, const std::string& message, int system_errno)
    : std::runtime_error(message), code_(code), errno_(system_errno) {}
Error::~Error() = default;

Error&& Error::with_hint(std::string hint) && {
  hint_ = std::move(hint);
  return std::move(*this);
}

Monitor::~Monitor() = default;
void Monitor::progress(const Progress&) {}
void Monitor::warning(std::string_view) {}
void Monitor::note(std::string_view) {}
bool Monitor::stop_requested() const { return false; }

std::string_view to_string(SaveState state) {
  switch (state) {
    case SaveState::staged: return "staged";
    case SaveState::writing: return "writing";
    case SaveState::written: return "written";
    case SaveState::durable: return "durable";
    case SaveState::verified: return "verified";
    case SaveState::failed: return "failed";
    case SaveState::skipped: return "skipped";
  }
  return "unknown";
}

const char* version() { return CKPT_VERSION; }
const char* format_version() { return "1.0"; }

}  // namespace ckpt

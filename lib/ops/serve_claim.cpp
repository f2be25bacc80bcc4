// SPDX-License-Identifier: Apache-2.0
#include "ops/serve_claim.hpp"

#include "ops/save_entries.hpp"
#include "source/source_tree.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <cerrno>
#include <new>

namespace ckpt::ops {
namespace {

/// What was handed over, as the producer's save would have found it.
std::vector<source::TreeEntry> entries_of(const std::string& tree, const doors::Ticket& ticket) {
  auto entries = source::arrange(
      source::collect_tree({.operands = {tree}, .directory = std::nullopt, .owner = ticket.save.owner}));
  const auto& implied = ticket.implied_directories;
  std::erase_if(entries, [&](const source::TreeEntry& entry) {
    return entry.file.type == format::EntryType::directory &&
           std::find(implied.begin(), implied.end(), entry.file.path) != implied.end();
  });
  return entries;
}

/// True for what time may mend, and a second try won't.
bool may_pass(const Error& error) {
  if (error.code() == Errc::busy || error.code() == Errc::no_space) return true;
  if (error.code() != Errc::io) return false;
  switch (error.system_errno()) {
    case EROFS:
    case EACCES:
    case EPERM:
    case ESTALE:
    case ETIMEDOUT:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENOTCONN:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return true;
    default: return false;
  }
}

void fill_in(ServedSave& served, const SaveReport& report) {
  served.state = report.state;
  served.reason = report.reason;
  served.raw_bytes = report.raw_bytes;
  served.stored_bytes = report.stored_bytes;
  served.write_seconds = report.write_seconds;
  served.commit_seconds = report.commit_seconds;
}

}  // namespace

ServedSave serve_claim(doors::Claim& claim, const std::string& door, const ServeOptions& options, Monitor& monitor) {
  const doors::Ticket& ticket = claim.ticket();
  ServedSave served{.door = door,
                    .step = ticket.save.step,
                    .rank = ticket.save.rank,
                    .world_size = ticket.save.world_size,
                    .raw_bytes = ticket.raw_bytes,
                    .stall_seconds = claim.stall_seconds()};
  SaveOptions save = ticket.save;
  save.store = options.store;
  save.jobs = options.jobs;
  const auto fail = [&](const std::string& reason) {
    served.will_retry = !claim.fail(reason);
    served.state = served.will_retry ? SaveState::staged : SaveState::failed;
    served.reason = reason;
  };
  try {
    const std::string tree = claim.fetch(monitor);
    const SaveReport report = save_entries(save, entries_of(tree, ticket), monitor);
    fill_in(served, report);
    claim.done(report);
  } catch (const Error& error) {
    if (error.code() == Errc::interrupted) {
      claim.release({});
      throw;
    }
    if (may_pass(error)) {
      claim.release(error.what());
      served.state = SaveState::staged;
      served.will_retry = true;
      served.reason = error.what();
    } else {
      fail(error.what());
    }
  } catch (const std::bad_alloc&) {
    fail("out of memory");
  }
  served.total_seconds = std::max(0.0, static_cast<double>(doors::now_ns() - ticket.created_ns) / 1e9);
  return served;
}

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
// Handing a state over: find it, fill in a ticket, and give both to a door.
#include <ckpt/stage.hpp>

#include "doors/doors.hpp"
#include "doors/spool_outlet.hpp"
#include "ops/save_input.hpp"
#include "store/attempts.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <chrono>

namespace ckpt {
namespace {

using Clock = std::chrono::steady_clock;

StageReport report_of(const StageOptions& options, const doors::Ticket& ticket, const doors::Receipt& receipt,
                      std::string door) {
  return {.step = options.save.step,
          .attempt = ticket.save.attempt,
          .rank = options.save.rank,
          .world_size = options.save.world_size,
          .state = receipt.state,
          .reason = receipt.reason,
          .id = receipt.id,
          .door = std::move(door),
          .how = receipt.how,
          .files = ticket.files,
          .raw_bytes = ticket.raw_bytes,
          .seconds = 0};
}

StageReport stage_in_spool(const StageOptions& options, Monitor& monitor) {
  if (options.save.store.empty()) throw Error(Errc::invalid_argument, "the store has an empty name");
  const store::Store store = store::Store::open_for_writing(options.save.store, options.save.create);
  const std::string path = options.spool.empty() ? doors::own_spool_path(store.path()) : options.spool;
  doors::Spool spool = doors::Spool::make(path, store.path());
  ops::SaveInput input = ops::find_input(options.save, spool.scratch(), monitor);
  doors::Parcel parcel{.options = options,
                       .ticket = doors::make_ticket(options.save, input.entries),
                       .entries = std::move(input.entries)};
  std::optional<std::uint64_t>& attempt = parcel.ticket.save.attempt;
  if (!attempt) attempt = store::highest_attempt(store);
  store::open_attempt(store, *attempt);
  const auto receipt = doors::SpoolOutlet(std::move(spool), store.path()).hand_over(parcel, monitor);
  return report_of(options, parcel.ticket, receipt, path);
}

StageReport stage_in_queue(const StageOptions& options, Monitor& monitor) {
  ops::SaveInput input = ops::find_input(options.save, ".", monitor);
  const doors::Parcel parcel{.options = options,
                             .ticket = doors::make_ticket(options.save, input.entries),
                             .entries = std::move(input.entries)};
  for (std::size_t i = 0;; ++i) {
    const std::string& address = options.to[i];
    try {
      const auto receipt = doors::open_queue_outlet(address, options)->hand_over(parcel, monitor);
      return report_of(options, parcel.ticket, receipt, address);
    } catch (const Error& error) {
      if (error.code() != Errc::busy || i + 1 == options.to.size()) throw;
      monitor.warning(error.what() + std::string("; trying '") + options.to[i + 1] + "'");
    }
  }
}

}  // namespace

StageReport stage(const StageOptions& options, Monitor& monitor) {
  const auto start = Clock::now();
  ops::check_save_options(options.save);
  if (options.limit.saves == 0) throw Error(Errc::invalid_argument, "no save may be staged");
  StageReport report = options.to.empty() ? stage_in_spool(options, monitor) : stage_in_queue(options, monitor);
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return report;
}

}  // namespace ckpt

// SPDX-License-Identifier: Apache-2.0
#include "transport/doors.hpp"

#include <ckpt/error.hpp>

namespace ckpt::transport {
namespace {

[[noreturn]] void throw_unknown(const std::string& address) {
  throw Error(Errc::invalid_argument, "'" + address + "' is no address of a queue");
}

}  // namespace

std::unique_ptr<Outlet> open_queue_outlet(const std::string& address, const StageOptions&) { throw_unknown(address); }

std::unique_ptr<Inlet> open_queue_inlet(const std::string& address, const std::string&, const ServeOptions&) {
  throw_unknown(address);
}

}  // namespace ckpt::transport

// SPDX-License-Identifier: Apache-2.0
// What ckpt-verify prints of one address.
#pragma once

#include <ckpt/address.hpp>
#include <ckpt/verify.hpp>

#include "cli/program.hpp"

namespace ckpt::cli {

/// Findings go to the report, what isn't damage to verbose messages and to JSON.
void put_result(Program& program, Report& report, const Address& what, const VerifyReport& verified);

}  // namespace ckpt::cli

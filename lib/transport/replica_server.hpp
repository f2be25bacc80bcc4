// SPDX-License-Identifier: Apache-2.0
// The far end of a pipe: answers requests with a replica.
#pragma once

#include "transport/replica.hpp"
#include "transport/wire.hpp"

namespace ckpt::transport {

/// Serves until the other side hangs up. What a request asks for wrongly, or what fails, is answered; what isn't a
/// message ends it: Errc::malformed.
void serve_replica(Wire& wire, Replica& replica);

}  // namespace ckpt::transport

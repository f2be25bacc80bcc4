// SPDX-License-Identifier: Apache-2.0
// Which doors there are, by their addresses.
#pragma once

#include "doors/door.hpp"

#include <ckpt/serve.hpp>
#include <ckpt/stage.hpp>

#include <memory>
#include <string>

namespace ckpt::doors {

/// The producer's end of a queue. Throws invalid_argument for an address that means nothing, unsupported for a door
/// that this build hasn't got.
[[nodiscard]] std::unique_ptr<Outlet> open_queue_outlet(const std::string& address, const StageOptions& options);

/// The server's end. What is fetched is put below `scratch`, which exists.
[[nodiscard]] std::unique_ptr<Inlet> open_queue_inlet(const std::string& address, const std::string& scratch,
                                                      const ServeOptions& options);

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
// Reading memory of this process that someone else may unmap at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ckpt::capture {

/// False if not all of [address, address + into.size()) is mapped. Takes no lock and allocates nothing.
[[nodiscard]] bool read_own_memory(std::uintptr_t address, std::span<std::byte> into) noexcept;

}  // namespace ckpt::capture

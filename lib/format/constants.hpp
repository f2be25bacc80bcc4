// SPDX-License-Identifier: Apache-2.0
// Numbers that are promises: ckpt-format(5) states each of them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ckpt::format {

inline constexpr std::uint16_t major_version = 1;
inline constexpr std::uint16_t minor_version = 0;

/// Flags that this version knows. An unknown `incompat` flag: refuse. An unknown `ro_compat` flag: read, don't write.
inline constexpr std::uint64_t known_compat = 0;
inline constexpr std::uint64_t known_ro_compat = 0;
inline constexpr std::uint64_t known_incompat = 3;
/// Blocks may be typed.
inline constexpr std::uint64_t incompat_typed = 1;
/// Blocks may have bases; in a manifest: the checkpoint needs others.
inline constexpr std::uint64_t incompat_bases = 2;

/// The most bytes a block can have, and the size at which extents are cut.
inline constexpr std::uint64_t block_size = 4U << 20U;
/// Neighbouring pieces smaller than this share a block.
inline constexpr std::uint64_t share_limit = 65536;
/// A payload of at least this many bytes starts at a multiple of payload_alignment.
inline constexpr std::uint64_t align_from = 65536;
inline constexpr std::uint64_t payload_alignment = 4096;
/// One XXH3-64 guards this many bytes of a container.
inline constexpr std::uint64_t granule = 65536;
/// Headers and sections start at a multiple of this.
inline constexpr std::uint64_t section_alignment = 8;

/// Refused above these, before anything is allocated.
inline constexpr std::uint64_t max_frame_header = 1U << 20U;
inline constexpr std::uint64_t max_frame_payload = 64U << 20U;
inline constexpr std::uint64_t max_index_size = 4ULL << 30U;
inline constexpr std::uint64_t max_catalog_size = 4ULL << 30U;
inline constexpr std::uint64_t max_manifest_size = 256U << 20U;
inline constexpr std::uint32_t max_world_size = 1U << 17U;
/// A frame has no more entries, so that its header stays small.
inline constexpr std::size_t max_frame_entries = 16384;

}  // namespace ckpt::format

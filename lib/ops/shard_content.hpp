// SPDX-License-Identifier: Apache-2.0
// From the inputs of a save to the blocks of a shard: finds the tensors, then reads and hashes block by block.
#pragma once

#include "core/bytes.hpp"
#include "core/digest.hpp"
#include "format/catalog.hpp"
#include "ops/shard_encoder.hpp"
#include "source/source_tree.hpp"

#include <ckpt/monitor.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ckpt::ops {

/// Parses every input and cuts it into blocks: a whole catalog. A malformed input is Errc::malformed, or with
/// `allow_malformed` stored as opaque bytes, and the catalog's shard marked suspect.
[[nodiscard]] format::Catalog describe_content(const std::vector<source::TreeEntry>& entries, format::ShardInfo shard,
                                               bool allow_malformed, unsigned jobs, Monitor& monitor);

/// Reads and hashes all blocks of `catalog`, whose files are `entries`, and gives each in order to `consume`. Those in
/// memory are taken.
/// Throws Errc::busy if an input isn't what it was when it was found; interrupted.
using BlockConsumer = std::function<void(ByteView raw, const Digest& hash)>;
void read_blocks(const std::vector<source::TreeEntry>& entries, const format::Catalog& catalog, unsigned jobs,
                 Monitor& monitor, std::string_view stage, const BlockConsumer& consume);

/// The same with each block encoded on the way: `encode` is called from many threads, `consume` in order. A block's
/// stored bytes are `raw` where it's stored so.
using BlockEncoding = std::function<EncodedBlock(std::uint64_t block, ByteView raw, const Digest& hash, Bytes& out)>;
using EncodedConsumer = std::function<void(std::uint64_t block, ByteView raw, const Digest& hash,
                                           const EncodedBlock& encoded, ByteView stored)>;
void encode_blocks(const std::vector<source::TreeEntry>& entries, const format::Catalog& catalog, unsigned jobs,
                   Monitor& monitor, std::string_view stage, const BlockEncoding& encode,
                   const EncodedConsumer& consume);

/// True if the inputs are what `stored` holds, however it was cut into blocks. Reads them only if names, modes and
/// sizes agree.
[[nodiscard]] bool has_same_content(const std::vector<source::TreeEntry>& entries, const format::Catalog& stored,
                                    const Digest& stored_root, unsigned jobs, Monitor& monitor);

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
#include "ops/reencode.hpp"

#include <ckpt/error.hpp>

namespace ckpt::ops {
namespace {

[[noreturn]] void cannot_encode(const store::Checkpoint& checkpoint) {
  throw Error(Errc::unsupported, "'" + checkpoint.directory + "' can't be encoded anew by this version");
}

}  // namespace

void rebase(const store::Store&, const store::Checkpoint& checkpoint, const std::vector<Digest>&, unsigned, Monitor&) {
  cannot_encode(checkpoint);
}

void drop_tensors(const store::Store&, const store::Checkpoint& checkpoint, const std::string&, unsigned, Monitor&) {
  cannot_encode(checkpoint);
}

}  // namespace ckpt::ops

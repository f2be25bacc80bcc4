// SPDX-License-Identifier: Apache-2.0
#include "transport/replica.hpp"

namespace ckpt::transport {

ReplicaCheckpoint describe(const format::Manifest& manifest, bool retired) {
  ReplicaCheckpoint entry{.identity = manifest.identity(),
                          .retired = retired,
                          .marked = manifest.is_marked(),
                          .attempt = manifest.attempt,
                          .raw_bytes = 0,
                          .stored_bytes = manifest.stored_bytes(),
                          .bases = manifest.bases};
  entry.raw_bytes += manifest.raw_bytes();
  return entry;
}

}  // namespace ckpt::transport

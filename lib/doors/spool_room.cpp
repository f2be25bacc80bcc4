// SPDX-License-Identifier: Apache-2.0
#include "doors/spool_room.hpp"

#include <ckpt/error.hpp>

namespace ckpt::doors {

Load load_of(const Spool& spool) {
  Load load;
  for (const Stage stage : {Stage::incoming, Stage::staged}) {
    for (const Entry& entry : spool.entries(stage)) {
      try {
        load.bytes += read_ticket(entry).raw_bytes;
      } catch (const Error& error) {
        if (error.code() == Errc::not_found) continue;  // drained in this moment
        if (error.code() != Errc::damaged && error.code() != Errc::unsupported) throw;
      }
      ++load.saves;
    }
  }
  return load;
}

std::string why_full(const Load& load, const StagedLimit& limit, std::uint64_t bytes) {
  if (load.saves == 0) return {};
  if (limit.saves && load.saves + 1 > *limit.saves) {
    return std::to_string(load.saves) + (load.saves == 1 ? " save is" : " saves are") + " staged, and " +
           std::to_string(*limit.saves) + " may be";
  }
  if (limit.bytes && load.bytes + bytes > *limit.bytes) {
    return std::to_string(load.bytes) + " bytes are staged, and with " + std::to_string(bytes) + " more it's above " +
           std::to_string(*limit.bytes);
  }
  return {};
}

}  // namespace ckpt::doors

// SPDX-License-Identifier: Apache-2.0
// Exit codes: few, the same for all tools, and chosen by what the caller can do.
#include "cli/exit_status.hpp"

#include <algorithm>

namespace ckpt::cli {
namespace {

int weight_of(int status) {
  switch (status) {
    case exit_done: return 0;
    case exit_temporary: return 1;
    case exit_no: return 2;
    default: return 3;
  }
}

}  // namespace

int exit_status_of(Errc code) { return code == Errc::busy ? exit_temporary : exit_trouble; }

int worse_of(int a, int b) {
  return std::max(a, b, [](int x, int y) { return weight_of(x) < weight_of(y); });
}

std::vector<ExitRow> exit_table(std::string_view done, std::string_view no) {
  std::vector<ExitRow> rows = {{"0", done}};
  if (!no.empty()) rows.push_back({"1", no});
  rows.push_back({"2", "trouble: usage, unreadable or malformed input, input or output failed"});
  rows.push_back({"75", "temporary: locked, in use, timed out; try again"});
  rows.push_back({"signal", "ended by INT, TERM or HUP, own temporaries removed"});
  return rows;
}

}  // namespace ckpt::cli

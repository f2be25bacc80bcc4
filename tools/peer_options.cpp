// SPDX-License-Identifier: Apache-2.0
#include "peer_options.hpp"

#include <ckpt/error.hpp>

#include "cli/environment.hpp"
#include "cli/words.hpp"

namespace ckpt::cli {

void declare_rsh(CommandLine& line, std::optional<std::string>& target) {
  line.option("-e,--rsh", "COMMAND", "the remote shell (default: CKPT_RSH, else ssh)", target);
}

std::vector<std::string> remote_shell(const std::optional<std::string>& given) {
  const auto text = given ? given : environment_text("CKPT_RSH");
  if (!text) return {"ssh"};
  std::vector<std::string> words = split_words(*text);
  if (words.empty()) throw Error(Errc::invalid_argument, "the remote shell has an empty name");
  return words;
}

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
#include "trainer_options.hpp"

#include <cstdio>
#include <map>
#include <string_view>
#include <variant>

namespace trainer {
namespace {

constexpr const char* help =
    "Usage: demo-trainer [options]\n"
    "\n"
    "Trains a small language model on text, on as many ranks as WORLD_SIZE says.\n"
    "Start it with ckpt-run, which names the store and the step to resume from.\n"
    "\n"
    "  --text=PATH      a file or a directory of files (/usr/share/common-licenses)\n"
    "  --steps=N        the last step (200)\n"
    "  --layers=N --width=N --heads=N --context=N      the model (4, 128, 4, 64)\n"
    "  --batch=N        samples a step, of all ranks together (8)\n"
    "  --lr=X           learning rate (0.001)\n"
    "  --seed=N         of the first weights and the order of the data (1)\n"
    "  --tp=N           ranks that share each layer (1)\n"
    "  --pp=N           ranks that share the layers out (1)\n"
    "  --save-every=N   steps; 0: only when asked, and in the end (0)\n"
    "  --nan-at=N       spoils the loss of a step, for tests\n"
    "  --digest         every rank prints the digest of the parameters, not only 0\n"
    "\n"
    "Exit status: 0 finished, or stopped as asked; 1 another rank is gone, or an\n"
    "error; 2 usage; 3 the loss isn't finite.\n";

using Target = std::variant<std::string*, std::int64_t*, double*, bool*>;

template <class Number>
Number number_from(const std::string& option, const std::string& value,
                   Number (*parse)(const std::string&, std::size_t*)) {
  try {
    std::size_t used = 0;
    const Number number = parse(value, &used);
    if (used == value.size() && !(number < 0)) return number;
  } catch (const std::exception&) {  // told below
  }
  throw UsageError("--" + option + ": '" + value + "' isn't a number from 0 on");
}

void check(const Options& o) {
  const auto demand = [](bool holds, const char* what) {
    if (!holds) throw UsageError(what);
  };
  demand(o.steps > 0 && o.layers > 0 && o.width > 0 && o.heads > 0 && o.context > 0 && o.batch > 0,
         "--steps, --layers, --width, --heads, --context and --batch are at least 1");
  demand(o.tp > 0 && o.pp > 0, "--tp and --pp are at least 1");
  demand(o.width % o.heads == 0, "--width must be a multiple of --heads");
  demand(o.heads % o.tp == 0, "--heads must be a multiple of --tp");
  demand(o.layers >= o.pp, "--pp can't be more than --layers");
}

}  // namespace

std::optional<Options> parse_options(int count, char** words) {
  Options o;
  const std::map<std::string, Target> targets = {
      {"text", &o.text},   {"steps", &o.steps},     {"layers", &o.layers}, {"width", &o.width},
      {"heads", &o.heads}, {"context", &o.context}, {"batch", &o.batch},   {"save-every", &o.save_every},
      {"seed", &o.seed},   {"tp", &o.tp},           {"pp", &o.pp},         {"nan-at", &o.nan_at},
      {"lr", &o.lr},       {"digest", &o.digest}};
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "-h" || word == "--help") {
      std::fputs(help, stdout);
      return std::nullopt;
    }
    const std::size_t equals = word.find('=');
    const auto found = word.rfind("--", 0) == 0 ? targets.find(word.substr(2, equals - 2)) : targets.end();
    if (found == targets.end()) throw UsageError("unknown option '" + word + "'");
    const bool is_flag = std::holds_alternative<bool*>(found->second);
    if (is_flag != (equals == std::string::npos))
      throw UsageError("--" + found->first +
                       (is_flag ? " takes no value" : " needs a value: --" + found->first + "=..."));
    const std::string value = is_flag ? "" : word.substr(equals + 1);
    if (is_flag) *std::get<bool*>(found->second) = true;
    if (auto* const text = std::get_if<std::string*>(&found->second)) **text = value;
    if (auto* const number = std::get_if<std::int64_t*>(&found->second))
      **number = number_from<long long>(found->first, value,
                                        [](const std::string& v, std::size_t* used) { return std::stoll(v, used); });
    if (auto* const number = std::get_if<double*>(&found->second))
      **number = number_from<double>(found->first, value,
                                     [](const std::string& v, std::size_t* used) { return std::stod(v, used); });
  }
  check(o);
  return o;
}

}  // namespace trainer

// SPDX-License-Identifier: Apache-2.0
#include "ops/save_input.hpp"

#include "format/constants.hpp"
#include "format/json_text.hpp"

#include <ckpt/address.hpp>
#include <ckpt/error.hpp>

#include <algorithm>
#include <iterator>

namespace ckpt::ops {

namespace {

[[noreturn]] void refuse(const std::string& why) { throw Error(Errc::invalid_argument, why); }

}  // namespace

void check_shard_options(const SaveOptions& options) {
  if (options.step > max_step) refuse("the step is above " + std::to_string(max_step));
  if (options.world_size == 0 || options.world_size > format::max_world_size) refuse("the world size is not possible");
  if (options.rank >= options.world_size) {
    refuse("rank " + std::to_string(options.rank) + " is not below the world size " +
           std::to_string(options.world_size));
  }
  if (options.resumed_from && !options.attempt) refuse("resumed-from needs the attempt that resumes");
  for (const auto& [key, value] : options.meta) {
    // The manifest is JSON.
    if (!format::json_text(key) || !format::json_text(value)) refuse("metadata '" + key + "' is not UTF-8");
  }
}

void check_save_options(const SaveOptions& options) {
  check_shard_options(options);
  if (options.sources.empty()) refuse("there is nothing to save");
  const auto stdins = std::count(options.sources.begin(), options.sources.end(), "-");
  if (stdins > 1) refuse("standard input can be saved once");
  if (stdins == 1 && options.stdin_name.empty()) refuse("standard input needs a name");
  if (stdins == 0 && !options.stdin_name.empty()) refuse("a name for standard input, which is not among the sources");
}

SaveInput find_input(const SaveOptions& options, const std::string& scratch, Monitor& monitor) {
  SaveInput input;
  if (std::find(options.sources.begin(), options.sources.end(), "-") != options.sources.end()) {
    input.standard_input.emplace(options.stdin_fd, scratch, monitor);
  }
  source::TreeRequest request{.operands = {}, .directory = options.directory, .owner = options.owner};
  std::copy_if(options.sources.begin(), options.sources.end(), std::back_inserter(request.operands),
               [](const std::string& operand) { return operand != "-"; });
  std::vector<source::TreeEntry> entries = source::collect_tree(request);
  if (input.standard_input) {
    source::TreeEntry entry = source::make_entry(options.stdin_name, input.standard_input->path(),
                                                 input.standard_input->status(), options.owner);
    entry.shown = "standard input";
    entry.status.st_nlink = 1;
    entry.file.mode = input.standard_input->mode();
    if (options.fixed_time) entry.file.mtime_ns = *options.fixed_time * 1'000'000'000;
    entries.push_back(std::move(entry));
  }
  input.entries = source::arrange(std::move(entries));
  return input;
}

}  // namespace ckpt::ops

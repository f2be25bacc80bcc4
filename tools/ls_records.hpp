// SPDX-License-Identifier: Apache-2.0
// What ckpt-ls knows of checkpoints, sets, files and tensors, as records for programs and tables for people.
#pragma once

#include <ckpt/list.hpp>

#include <vector>

#include "cli/program.hpp"

namespace ckpt::cli {

[[nodiscard]] Record record_of(const CheckpointInfo& info);
[[nodiscard]] Record record_of(const PendingInfo& info);
[[nodiscard]] Record record_of(const FileInfo& info);
[[nodiscard]] Record record_of(const TensorListing& tensor);
[[nodiscard]] Record record_of(const FileSum& sum);

void print_table(Report& report, const std::vector<CheckpointInfo>& list, bool color);
void print_table(Report& report, const std::vector<PendingInfo>& list, bool color);
void print_table(Report& report, const std::vector<FileInfo>& list, bool color);
void print_table(Report& report, const std::vector<TensorListing>& list, bool color);
/// Lines that `xxh128sum -c` accepts.
void print_table(Report& report, const std::vector<FileSum>& list, bool color);

}  // namespace ckpt::cli

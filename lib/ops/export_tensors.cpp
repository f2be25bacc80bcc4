// SPDX-License-Identifier: Apache-2.0
// Exporting tensors: choose them, lay the output out, write it from front to back.
#include <ckpt/restore.hpp>

#include "ops/destination.hpp"
#include "ops/export_layout.hpp"
#include "ops/export_output.hpp"
#include "ops/export_selection.hpp"
#include "ops/export_source.hpp"
#include "ops/open_shard.hpp"
#include "os/small_file.hpp"
#include "store/pins.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <memory>
#include <string>

namespace ckpt {
namespace {

void check_options(const ExportOptions& options) {
  if (options.output.empty() == options.output_fd.has_value()) return;
  throw Error(Errc::invalid_argument, options.output_fd ? "an output path and an output descriptor exclude each other"
                                                        : "an export needs an output");
}

void require_one(const std::vector<ops::ExportItem>& items, ExportFormat format) {
  if (items.size() == 1) return;
  throw Error(Errc::invalid_argument, std::to_string(items.size()) + " tensors match, and " +
                                          (format == ExportFormat::raw ? "raw" : "npy") + " holds one: '" +
                                          items[0].tensor.name + "', '" + items[1].tensor.name +
                                          (items.size() > 2 ? "', ..." : "'"))
      .with_hint("use --as=safetensors or --as=tar for several");
}

ops::ExportLayout lay_out(const std::vector<ops::ExportItem>& items, ExportFormat format,
                          const store::Checkpoint& checkpoint) {
  switch (format) {
    case ExportFormat::raw: require_one(items, format); return ops::lay_out_raw(items);
    case ExportFormat::npy: require_one(items, format); return ops::lay_out_npy(items);
    case ExportFormat::safetensors: return ops::lay_out_safetensors(items);
    case ExportFormat::tar: return ops::lay_out_tar(items, checkpoint.manifest.created.value_or(0));
  }
  throw Error(Errc::invalid_argument, "an export format that isn't known");
}

std::uint64_t size_of(const ops::ExportLayout& layout, const std::vector<ops::ExportItem>& items) {
  std::uint64_t size = 0;
  for (const ops::ExportSegment& segment : layout) {
    size += segment.literal.size() + (segment.item ? items[*segment.item].bytes : 0);
  }
  return size;
}

std::unique_ptr<ops::ExportOutput> open_output(const ExportOptions& options, std::uint64_t size) {
  if (options.output_fd) return std::make_unique<ops::ExportOutput>(*options.output_fd);
  ops::require_outside(options.from.store, os::parent_of(options.output));
  return std::make_unique<ops::ExportOutput>(options.output, options.force, size);
}

}  // namespace

ExportReport export_tensors(const ExportOptions& options, Monitor& monitor) {
  check_options(options);
  const store::Store store = store::Store::open(options.from.store);
  const store::Checkpoint checkpoint = store.resolve(options.from.selector);
  ops::require_allowed(checkpoint, options.allow_lossy);
  const auto pin = store::Pin::try_to_hold(store, checkpoint);
  ops::ExportSource source(checkpoint, options.jobs, monitor);
  const std::vector<ops::ExportItem> items = ops::select_tensors(checkpoint, options, source, monitor);
  const ops::ExportLayout layout = lay_out(items, options.as, checkpoint);
  const std::uint64_t size = size_of(layout, items);

  const auto output = open_output(options, size);
  for (const ops::ExportSegment& segment : layout) {
    output->write(as_bytes(segment.literal));
    if (!segment.item) continue;
    source.read(items[*segment.item], [&](ByteView elements) {
      output->write(elements);
      monitor.progress({.stage = "export", .done = output->written(), .total = size});
    });
  }
  output->commit();
  return {.step = checkpoint.manifest.step,
          .id = to_hex(checkpoint.manifest.id),
          .tensors = items.size(),
          .bytes = output->written()};
}

}  // namespace ckpt

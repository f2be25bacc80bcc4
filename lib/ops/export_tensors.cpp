// SPDX-License-Identifier: Apache-2.0
// Exporting tensors: choose them, lay the output out, write it from front to back.
#include <ckpt/restore.hpp>

#include "core/crc32.hpp"
#include "ops/destination.hpp"
#include "ops/export_layout.hpp"
#include "ops/export_output.hpp"
#include "ops/export_selection.hpp"
#include "ops/export_source.hpp"
#include "ops/export_wholes.hpp"
#include "ops/open_shard.hpp"
#include "os/small_file.hpp"
#include "store/pins.hpp"
#include "store/store.hpp"

#include <ckpt/error.hpp>

#include <functional>
#include <memory>
#include <optional>
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
    case ExportFormat::pt: return ops::lay_out_pt(items);
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

/// Writes a layout from front to back: whoever has the items' bytes gives them as their turn comes.
class LayoutWriter {
 public:
  LayoutWriter(const ops::ExportLayout& layout, const std::vector<ops::ExportItem>& items, ops::ExportOutput& output,
               Monitor& monitor)
      : layout_(layout),
        items_(items),
        size_(size_of(layout, items)),
        output_(output),
        monitor_(monitor),
        checksums_(items.size()) {
    for (const ops::ExportSegment& segment : layout) needs_checksums_ |= !segment.checksums.empty();
  }

  /// Goes on to the next item, whose bytes are to be put then; null at the end.
  [[nodiscard]] const ops::ExportItem* next() {
    while (at_ < layout_.size()) {
      const ops::ExportSegment& segment = layout_[at_++];
      std::string literal = segment.literal;
      for (const auto& [at, item] : segment.checksums) {
        store_le(std::as_writable_bytes(std::span(literal)).data() + at, checksums_[item]);
      }
      output_.write(as_bytes(literal));
      item_ = segment.item;
      if (item_) return &items_[*item_];
    }
    return nullptr;
  }

  void put(ByteView elements) {
    if (needs_checksums_) checksums_[*item_] = crc32(checksums_[*item_], elements);
    output_.write(elements);
    monitor_.progress({.stage = "export", .done = output_.written(), .total = size_});
  }

 private:
  const ops::ExportLayout& layout_;
  const std::vector<ops::ExportItem>& items_;
  std::uint64_t size_;
  ops::ExportOutput& output_;
  Monitor& monitor_;
  std::vector<std::uint32_t> checksums_;
  bool needs_checksums_ = false;
  std::size_t at_ = 0;
  std::optional<std::size_t> item_;
};

using WriteItems = std::function<void(const ops::ExportLayout& layout, LayoutWriter& to)>;

ExportReport write_export(const ExportOptions& options, const store::Checkpoint& checkpoint,
                          const std::vector<ops::ExportItem>& items, Monitor& monitor, const WriteItems& write_items) {
  const ops::ExportLayout layout = lay_out(items, options.as, checkpoint);
  const auto output = open_output(options, size_of(layout, items));
  LayoutWriter writer(layout, items, *output, monitor);
  write_items(layout, writer);
  output->commit();
  return {.step = checkpoint.manifest.step,
          .id = to_hex(checkpoint.manifest.id),
          .tensors = items.size(),
          .bytes = output->written()};
}

ExportReport export_parts(const ExportOptions& options, const store::Checkpoint& checkpoint, Monitor& monitor) {
  ops::ExportSource source(checkpoint, options.jobs, monitor);
  const std::vector<ops::ExportItem> items = ops::select_tensors(checkpoint, options, source, monitor);
  return write_export(options, checkpoint, items, monitor, [&](const ops::ExportLayout&, LayoutWriter& to) {
    while (const ops::ExportItem* item = to.next()) {
      source.read(*item, [&](ByteView elements) { to.put(elements); });
    }
  });
}

ExportReport export_wholes(const ExportOptions& options, const store::Checkpoint& checkpoint, Monitor& monitor) {
  const ops::GlobalTensors tensors(checkpoint, options.select, monitor);
  const std::vector<ops::ExportItem> items = ops::select_wholes(tensors, options, monitor);
  return write_export(options, checkpoint, items, monitor, [&](const ops::ExportLayout& layout, LayoutWriter& to) {
    std::vector<const ops::ExportItem*> in_order;
    for (const ops::ExportSegment& segment : layout) {
      if (segment.item) in_order.push_back(&items[*segment.item]);
    }
    std::size_t begun = 0;
    ops::stream_wholes(tensors, in_order, options.jobs, monitor, [&](std::size_t number, ByteView elements) {
      for (; begun <= number; ++begun) (void)to.next();
      to.put(elements);
    });
    (void)to.next();
  });
}

}  // namespace

ExportReport export_tensors(const ExportOptions& options, Monitor& monitor) {
  check_options(options);
  const store::Store store = store::Store::open(options.from.store);
  const store::Checkpoint checkpoint = store.resolve(options.from.selector);
  ops::require_allowed(checkpoint, options.allow_lossy);
  const auto pin = store::Pin::try_to_hold(store, checkpoint);
  return options.full ? export_wholes(options, checkpoint, monitor) : export_parts(options, checkpoint, monitor);
}

}  // namespace ckpt

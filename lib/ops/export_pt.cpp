// SPDX-License-Identifier: Apache-2.0
// Tensors as torch.save writes a flat dict of them: a zip of a pickle and a record for each.
#include "ops/export_layout.hpp"

#include "core/bytes.hpp"
#include "source/torch_archive_layout.hpp"
#include "source/torch_pickle_writer.hpp"

#include <string>
#include <utility>

namespace ckpt::ops {

ExportLayout lay_out_pt(const std::vector<ExportItem>& items) {
  std::vector<std::string> keys;
  std::vector<std::vector<std::int64_t>> strides;
  keys.reserve(items.size());
  strides.reserve(items.size());
  std::vector<source::PickledTensor> tensors;
  for (const ExportItem& item : items) {
    if (!source::can_be_pickled(item.tensor.dtype)) {
      refuse_dtype(item, "pt", "use --as=raw for it, and --tensor to choose others");
    }
    keys.push_back(std::to_string(keys.size()));
    strides.push_back(contiguous_strides(item.tensor.shape));
    tensors.push_back({.name = item.name,
                       .dtype = item.tensor.dtype,
                       .storage_key = keys.back(),
                       .storage_bytes = item.bytes,
                       .offset = 0,
                       .shape = item.tensor.shape,
                       .strides = strides.back()});
  }
  source::TorchArchiveLayout archive("archive");
  const std::string pickle = source::pickle_of(tensors);
  archive.add("data.pkl", as_bytes(pickle));
  archive.add("byteorder", as_bytes(std::string_view("little")));
  for (std::size_t i = 0; i < items.size(); ++i) archive.add_content("data/" + keys[i], i, items[i].bytes);
  archive.add("version", as_bytes(std::string_view("3\n")));
  ExportLayout layout;
  for (source::ArchiveSegment& segment : archive.finish()) {
    layout.push_back({.literal = std::move(segment.literal), .item = segment.content});
    for (const auto& checksum : segment.checksums)
      layout.back().checksums.push_back({.at = checksum.at, .item = checksum.content});
  }
  return layout;
}

}  // namespace ckpt::ops

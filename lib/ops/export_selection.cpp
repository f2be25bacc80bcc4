// SPDX-License-Identifier: Apache-2.0
#include "ops/export_selection.hpp"

#include "core/patterns.hpp"
#include "ops/export_wholes.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace ckpt::ops {
namespace {

void require_all_hit(const PatternList& patterns, const std::string& what) {
  if (const std::string* pattern = patterns.unmatched()) {
    throw Error(Errc::not_found, "no " + what + " matches '" + *pattern + "'");
  }
}

/// An exact name goes before a pattern, wherever it is: so all names are seen first.
void learn_names(const format::Catalog& catalog, PatternList& files, PatternList& tensors) {
  for (const format::FileEntry& file : catalog.files) files.learn(file.path);
  for (const Tensor& tensor : catalog.tensors) tensors.learn(tensor.name);
}

std::string exported_name(const std::string& name, const std::string& prefix) {
  if (prefix.empty() || !name.starts_with(prefix)) return name;
  if (name.size() == prefix.size()) {
    throw Error(Errc::invalid_argument, "without the prefix '" + prefix + "' nothing is left of tensor '" + name + "'");
  }
  return name.substr(prefix.size());
}

void add_shard(const format::ContainerReader& container, std::size_t shard, const ExportOptions& options,
               PatternList& files, PatternList& tensors, std::vector<ExportItem>& to) {
  const format::Catalog& catalog = container.catalog();
  for (std::size_t f = 0; f < catalog.files.size(); ++f) {
    const format::FileEntry& file = catalog.files[f];
    if (!files.matches(file.path)) continue;
    for (std::uint64_t t = file.first_tensor; t < file.first_tensor + file.tensor_count; ++t) {
      const Tensor& tensor = catalog.tensors[t];
      if (!tensors.matches(tensor.name)) continue;
      to.push_back({.shard = shard,
                    .file = f,
                    .path = file.path,
                    .tensor = tensor,
                    .name = exported_name(tensor.name, options.strip_prefix),
                    .bytes = tensor.has_bytes ? contiguous_bytes(tensor).value_or(0) : 0});
    }
  }
}

bool is_made_of_parts(const ExportItem& item) {
  return !item.tensor.has_bytes && item.tensor.layout != Layout::strided && item.tensor.layout != Layout::quantized;
}

std::string about(const ExportItem& item) { return "'" + item.tensor.name + "' of '" + item.path + "'"; }

/// A part of `name` is called `name.indices` and the like.
void leave_out_wholes(std::vector<ExportItem>& items) {
  std::unordered_set<std::string> wholes;
  for (const ExportItem& item : items) {
    if (is_made_of_parts(item)) wholes.insert(item.tensor.name);
  }
  if (wholes.empty()) return;
  std::unordered_set<std::string> with_parts;
  for (const ExportItem& item : items) {
    const std::string above = item.tensor.name.substr(0, item.tensor.name.rfind('.'));
    if (item.tensor.has_bytes && above != item.tensor.name && wholes.contains(above)) with_parts.insert(above);
  }
  std::erase_if(
      items, [&](const ExportItem& item) { return is_made_of_parts(item) && with_parts.contains(item.tensor.name); });
}

void require_bytes(const ExportItem& item) {
  if (item.tensor.has_bytes) return;
  if (is_made_of_parts(item)) {
    throw Error(Errc::unsupported, "tensor " + about(item) + " is " + std::string(name_of(item.tensor.layout)))
        .with_hint("its parts are tensors of their own: --tensor='" + item.tensor.name + ".*'");
  }
  throw Error(Errc::unsupported, "tensor " + about(item) + " has no bytes: it was on the meta device")
      .with_hint("use --tensor to choose others");
}

bool is_part(const Tensor& tensor) { return !tensor.global_shape.empty() && tensor.global_shape != tensor.shape; }

/// One item of each name; `require_same(first, other)` throws where another can't be left out.
template <class RequireSame>
std::vector<ExportItem> keep_first_of_each(std::vector<ExportItem> items, RequireSame require_same) {
  std::vector<ExportItem> kept;
  std::unordered_map<std::string, std::size_t> by_name;
  for (ExportItem& item : items) {
    const auto [place, is_new] = by_name.emplace(item.name, kept.size());
    if (is_new) {
      kept.push_back(std::move(item));
    } else {
      require_same(kept[place->second], item);
    }
  }
  return kept;
}

std::vector<ExportItem> merge_replicas(std::vector<ExportItem> items, ExportSource& source, const Monitor& monitor) {
  return keep_first_of_each(std::move(items), [&](const ExportItem& first, const ExportItem& item) {
    require_no_stop(monitor);
    if (source.are_replicas(first, item)) return;
    const bool same_path = first.path == item.path;
    const std::string where = same_path ? " differs between ranks" : " would stand for two tensors";
    throw Error(Errc::invalid_argument,
                "the name '" + item.name + "'" + where + ": " + about(first) + " and " + about(item))
        .with_hint(is_part(first.tensor) && is_part(item.tensor)        ? "--full joins the parts of ranks"
                   : same_path && first.tensor.name == item.tensor.name ? "choose one with --rank"
                                                                        : "choose with --file or --rank");
  });
}

}  // namespace

std::vector<ExportItem> select_tensors(const store::Checkpoint& checkpoint, const ExportOptions& options,
                                       ExportSource& source, const Monitor& monitor) {
  PatternList files(options.select.files);
  PatternList tensors(options.tensors);
  std::vector<ExportItem> items;
  bool any_shard = false;
  const auto visit_shards = [&](const auto& visit) {
    for (std::size_t s = 0; s < checkpoint.manifest.shards.size(); ++s) {
      if (options.select.rank && *options.select.rank != checkpoint.manifest.shards[s].rank) continue;
      require_no_stop(monitor);
      any_shard = true;
      visit(s);
    }
  };
  if (files.has_wildcards() || tensors.has_wildcards()) {
    visit_shards([&](std::size_t s) { learn_names(source.shards().get(s)->catalog(), files, tensors); });
  }
  visit_shards([&](std::size_t s) { add_shard(*source.shards().get(s), s, options, files, tensors, items); });
  if (!any_shard) {
    throw Error(Errc::not_found, "'" + checkpoint.directory + "' has no rank " +
                                     std::to_string(options.select.rank.value_or(0)) + ": its world size is " +
                                     std::to_string(checkpoint.manifest.world_size));
  }
  require_all_hit(files, "file");
  require_all_hit(tensors, "tensor");
  if (items.empty()) throw Error(Errc::not_found, "'" + checkpoint.directory + "' has no tensors");
  leave_out_wholes(items);
  for (const ExportItem& item : items) require_bytes(item);
  return merge_replicas(std::move(items), source, monitor);
}

std::vector<ExportItem> select_wholes(const GlobalTensors& tensors, const ExportOptions& options,
                                      const Monitor& monitor) {
  PatternList patterns(options.tensors);
  for (const GlobalTensor& tensor : tensors.all()) patterns.learn(tensor.name);
  std::vector<ExportItem> items;
  for (std::size_t i = 0; i < tensors.all().size(); ++i) {
    const GlobalTensor& whole = tensors.all()[i];
    if (!patterns.matches(whole.name)) continue;
    Tensor tensor{.name = whole.name,
                  .dtype = whole.dtype,
                  .layout = whole.layout,
                  .shape = whole.shape,
                  .strides = contiguous_strides(whole.shape)};
    tensor.has_bytes = !whole.parts.empty() || element_count(tensor) == 0;
    const std::uint64_t bytes = tensor.has_bytes ? contiguous_bytes(tensor).value_or(0) : 0;
    items.push_back({.path = whole.path,
                     .tensor = std::move(tensor),
                     .name = exported_name(whole.name, options.strip_prefix),
                     .bytes = bytes,
                     .whole = i});
  }
  require_all_hit(patterns, "tensor");
  if (items.empty()) throw Error(Errc::not_found, "'" + tensors.checkpoint().directory + "' has no tensors");
  leave_out_wholes(items);
  for (const ExportItem& item : items) {
    if (tensors.all()[item.whole].problem.empty()) require_bytes(item);
    tensors.require_complete(tensors.all()[item.whole]);
  }
  return keep_first_of_each(std::move(items), [&](const ExportItem& first, const ExportItem& item) {
    if (are_the_same(tensors, tensors.all()[first.whole], tensors.all()[item.whole], monitor)) return;
    throw Error(Errc::invalid_argument,
                "the name '" + item.name + "' would stand for two tensors: " + about(first) + " and " + about(item))
        .with_hint("choose with --file");
  });
}

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
#include "format/manifest.hpp"

#include "format/catalog.hpp"
#include "format/constants.hpp"
#include "format/container_index.hpp"
#include "format/json_fields.hpp"
#include "format/rfc3339.hpp"
#include "format/sealed_json.hpp"

#include <ckpt/error.hpp>

#include <array>
#include <nlohmann/json.hpp>

namespace ckpt::format {
namespace {

using OrderedJson = nlohmann::ordered_json;

ManifestShard decode_shard(const OrderedJson& object, const std::string& name) {
  const JsonFields fields(object, name);
  ManifestShard shard{.rank = static_cast<std::uint32_t>(fields.number("rank", max_world_size)),
                      .file = fields.text("file"),
                      .size = fields.number("size"),
                      .root = fields.digest("root"),
                      .digest = fields.digest("digest"),
                      .files = fields.number("files"),
                      .tensors = fields.number("tensors"),
                      .raw_bytes = fields.number("raw_bytes")};
  if (!is_safe_path(shard.file) || shard.file.find('/') != std::string::npos)
    fields.fail("a shard's file name would leave the directory");
  return shard;
}

}  // namespace

std::uint64_t Manifest::stored_bytes() const {
  std::uint64_t total = 0;
  for (const ManifestShard& shard : shards) total += shard.size;
  return total;
}

std::uint64_t Manifest::raw_bytes() const {
  std::uint64_t total = 0;
  for (const ManifestShard& shard : shards) total += shard.raw_bytes;
  return total;
}

std::string Manifest::why_never_latest() const {
  for (const char* mark : {"suspect", "lossy", "poisoned"}) {
    if (marks.contains(mark)) return mark;
  }
  return {};
}

bool Manifest::is_marked() const { return !why_never_latest().empty(); }

std::string encode_manifest(const Manifest& manifest) {
  OrderedJson object = json_head("ckpt-manifest", manifest.bases.empty() ? 0 : incompat_bases);
  object["id"] = to_hex(manifest.id);
  object["step"] = manifest.step;
  object["attempt"] = manifest.attempt;
  object["world_size"] = manifest.world_size;
  if (manifest.created) object["created"] = rfc3339(*manifest.created);
  object["shards"] = OrderedJson::array();
  for (const ManifestShard& shard : manifest.shards) {
    object["shards"].push_back({{"rank", shard.rank},
                                {"file", shard.file},
                                {"size", shard.size},
                                {"root", to_hex(shard.root)},
                                {"digest", to_hex(shard.digest)},
                                {"files", shard.files},
                                {"tensors", shard.tensors},
                                {"raw_bytes", shard.raw_bytes}});
  }
  object["depends_on"] = OrderedJson::array();
  for (const BaseCheckpoint& base : manifest.bases) {
    object["depends_on"].push_back({{"id", to_hex(base.id)}, {"step", base.step}});
  }
  object["meta"] = OrderedJson::object();
  for (const auto& [key, value] : manifest.meta) object["meta"][key] = value;
  object["marks"] = OrderedJson::object();
  for (const auto& [key, value] : manifest.marks) object["marks"][key] = value;
  if (!manifest.timings.empty()) {
    object["timings"] = OrderedJson::object();
    for (const auto& [key, value] : manifest.timings) object["timings"][key] = value;
  }
  return seal(object);
}

Manifest decode_manifest(std::string_view text, const std::string& name) {
  const OrderedJson object = unseal(text, name);
  const JsonFields fields(object, name);
  Manifest manifest;
  manifest.read_only = fields.check_version("ckpt-manifest");
  manifest.id = fields.digest("id");
  manifest.step = fields.number("step");
  manifest.attempt = fields.number("attempt");
  manifest.world_size = static_cast<std::uint32_t>(fields.number("world_size", max_world_size));
  if (fields.has("created")) {
    manifest.created = from_rfc3339(fields.text("created"));
    if (!manifest.created) fields.fail("field 'created' is not a time");
  }
  if (!fields.at("shards").is_array()) fields.fail("field 'shards' is not a list");
  std::vector<Digest> roots;
  for (const OrderedJson& shard : fields.at("shards")) {
    manifest.shards.push_back(decode_shard(shard, name));
    if (manifest.shards.back().rank != roots.size()) fields.fail("shards are not one for each rank, in order");
    roots.push_back(manifest.shards.back().root);
  }
  if (roots.empty() || roots.size() != manifest.world_size) fields.fail("the number of shards is not the world size");
  if (checkpoint_id(roots) != manifest.id) fields.fail("the id doesn't follow from the shards' roots");
  if (!fields.at("depends_on").is_array()) fields.fail("field 'depends_on' is not a list");
  for (const OrderedJson& base : fields.at("depends_on")) {
    const JsonFields base_fields(base, name);
    manifest.bases.push_back({.id = base_fields.digest("id"), .step = base_fields.number("step")});
  }
  manifest.meta = fields.texts("meta");
  manifest.marks = fields.texts("marks");
  if (fields.has("timings") && fields.at("timings").is_object()) {
    for (const auto& [key, value] : fields.at("timings").items()) {
      if (value.is_number()) manifest.timings[key] = value.get<double>();
    }
  }
  return manifest;
}

std::string encode_store_description() {
  OrderedJson object = json_head("ckpt-store");
  object["block_size"] = block_size;
  object["granule"] = granule;
  return seal(object);
}

void check_store_description(std::string_view text, const std::string& name, bool for_writing) {
  const OrderedJson object = unseal(text, name);
  const JsonFields fields(object, name);
  const std::string read_only = fields.check_version("ckpt-store");
  if (for_writing && !read_only.empty())
    throw Error(Errc::unsupported, "'" + name + "' can only be read: " + read_only);
  if (for_writing && fields.number("block_size") != block_size) {
    throw Error(Errc::unsupported, "'" + name + "' asks for blocks of another size");
  }
}

}  // namespace ckpt::format

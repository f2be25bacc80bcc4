// SPDX-License-Identifier: Apache-2.0
// Reading checkpoints through the C interface.
#include "capi/load.hpp"
#include "core/pipeline.hpp"
#include "format/block_decoder.hpp"
#include "ops/open_shard.hpp"

#include <ckpt/address.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace ckpt::capi {
namespace {

Selector selector_of(const char* text) {
  if (text == nullptr) return {};
  const Address address = parse_address(std::string("store@") + text);
  if (address.selector.kind == Selector::Kind::none) refuse("'" + std::string(text) + "' names no checkpoint");
  return address.selector;
}

struct FoundFile {
  std::shared_ptr<const format::ContainerReader> container;
  const format::FileEntry* file = nullptr;
};

FoundFile find_file(const ckpt_load& load, std::uint32_t rank, const std::string& path) {
  const auto& shards = load.checkpoint.manifest.shards;
  if (rank >= shards.size()) throw Error(Errc::not_found, "the checkpoint has no rank " + std::to_string(rank));
  FoundFile found{.container = ops::open_shard(load.checkpoint, rank), .file = nullptr};
  const auto& files = found.container->catalog().files;
  std::string name = path;
  // One hard link leads to a file.
  for (int i = 0; i < 2; ++i) {
    const auto file =
        std::find_if(files.begin(), files.end(), [&](const format::FileEntry& entry) { return entry.path == name; });
    if (file == files.end()) break;
    if (file->type == format::EntryType::file) {
      found.file = &*file;
      return found;
    }
    if (file->type != format::EntryType::hardlink) break;
    name = file->target;
  }
  throw Error(Errc::not_found, "rank " + std::to_string(rank) + " has no file '" + path + "'");
}

/// Each block is decoded where it belongs.
void read_file(const FoundFile& found, std::byte* into) {
  const format::FileEntry& file = *found.file;
  std::vector<std::uint64_t> begins;
  std::uint64_t begin = 0;
  for (std::uint64_t b = 0; b < file.block_count; ++b) {
    begins.push_back(begin);
    begin += found.container->catalog().block_sizes[file.first_block + b];
  }
  Pool<std::unique_ptr<format::BlockDecoder>> decoders;
  run_parallel(file.block_count, worker_count(0), [&](std::size_t b) {
    auto decoder = decoders.take();
    if (*decoder == nullptr) *decoder = std::make_unique<format::BlockDecoder>();
    const ByteView raw = (*decoder)->read(*found.container, file.first_block + b);
    std::memcpy(into + begins[b], raw.data(), raw.size());
  });
}

void describe(const ops::GlobalTensor& tensor, ckpt_tensor_info& info) {
  const std::size_t size = info.struct_size;
  if (size < sizeof(std::size_t)) refuse("the tensor's info doesn't say its size");
  ckpt_tensor_info known{.struct_size = std::min(size, sizeof info),
                         .name = tensor.name.c_str(),
                         .dtype = name_of(tensor.dtype).data(),
                         .dims = static_cast<std::uint32_t>(tensor.shape.size()),
                         .shape = tensor.shape.data()};
  std::memcpy(&info, &known, known.struct_size);
}

const ckpt_load& checked(const ckpt_load* load) {
  required(load, "the load").process.require();
  return *load;
}

}  // namespace
}  // namespace ckpt::capi

using namespace ckpt::capi;

int ckpt_load_open(const char* store, const char* selector, ckpt_load** load) {
  return guarded([&] {
    required(load, "the place for the load") = nullptr;
    const auto opened = ckpt::store::Store::open(&required(store, "the store"));
    auto made = std::make_unique<ckpt_load>();
    made->checkpoint = opened.resolve(selector_of(selector));
    made->pin = ckpt::store::Pin::try_to_hold(opened, made->checkpoint);
    made->id = ckpt::to_hex(made->checkpoint.manifest.id);
    made->tensors = std::make_unique<ckpt::ops::GlobalTensors>(made->checkpoint, ckpt::Selection{}, made->monitor);
    *load = made.release();
  });
}

void ckpt_load_free(ckpt_load* load) {
  if (load == nullptr || !load->process.is_here()) return;
  delete load;
}

uint64_t ckpt_load_step(const ckpt_load* load) { return load->checkpoint.manifest.step; }

uint32_t ckpt_load_world_size(const ckpt_load* load) { return load->checkpoint.manifest.world_size; }

const char* ckpt_load_id(const ckpt_load* load) { return load->id.c_str(); }

int ckpt_load_file_size(const ckpt_load* load, uint32_t rank, const char* path, uint64_t* size) {
  return guarded([&] {
    required(size, "the place for the size") = find_file(checked(load), rank, &required(path, "the path")).file->size;
  });
}

int ckpt_load_file(ckpt_load* load, uint32_t rank, const char* path, void* into, uint64_t size) {
  return guarded([&] {
    const FoundFile found = find_file(checked(load), rank, &required(path, "the path"));
    if (size != found.file->size) refuse("the file has " + std::to_string(found.file->size) + " bytes");
    auto* const bytes = static_cast<std::byte*>(into);
    if (size > 0) (void)required(bytes, "the place for the file");
    read_file(found, bytes);
  });
}

size_t ckpt_load_tensor_count(const ckpt_load* load) { return load->tensors->all().size(); }

int ckpt_load_tensor_at(const ckpt_load* load, size_t index, ckpt_tensor_info* info) {
  return guarded([&] {
    const auto& all = checked(load).tensors->all();
    if (index >= all.size()) refuse("the checkpoint has " + std::to_string(all.size()) + " tensors");
    describe(all[index], required(info, "the tensor's info"));
  });
}

int ckpt_load_find(const ckpt_load* load, const char* name, ckpt_tensor_info* info) {
  return guarded(
      [&] { describe(checked(load).tensors->find(&required(name, "the name")), required(info, "the tensor's info")); });
}

int ckpt_load_slice(ckpt_load* load, const char* name, const int64_t* offsets, const int64_t* shape,
                    const int64_t* strides, void* into) {
  return guarded([&] {
    const auto& tensors = *checked(load).tensors;
    const ckpt::ops::GlobalTensor& tensor = tensors.find(&required(name, "the name"));
    const std::size_t dims = tensor.shape.size();
    ckpt::ops::Box box = ckpt::ops::whole_of(tensor.shape);
    if (dims > 0) {
      box = {.offsets = {&required(offsets, "the offsets"), offsets + dims},
             .shape = {&required(shape, "the shape"), shape + dims}};
    }
    std::vector<std::int64_t> steps = ckpt::contiguous_strides(box.shape);
    if (strides != nullptr) steps.assign(strides, strides + dims);
    auto* const bytes = static_cast<std::byte*>(into);
    if (ckpt::ops::volume_of(box) > 0) (void)required(bytes, "the place for the elements");
    tensors.read(tensor, box, steps, bytes, 0, load->monitor);
  });
}

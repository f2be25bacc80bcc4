// SPDX-License-Identifier: Apache-2.0
// Tensors that are mapped, through the C interface.
#include "capi/load.hpp"
#include "ops/mapped_tensor.hpp"

#include <sys/mman.h>
#include <algorithm>
#include <cstring>

using namespace ckpt::capi;

int ckpt_load_map(ckpt_load* load, const char* name, ckpt_mapping* mapping) {
  return guarded([&] {
    const std::size_t size = required(mapping, "the place for the mapping").struct_size;
    if (size < sizeof *mapping) refuse("the mapping doesn't say its size");
    required(load, "the load").process.require();
    const auto& tensor = load->tensors->find(&required(name, "the name"));
    auto mapped = ckpt::ops::MappedTensor::map(*load->tensors, tensor);
    if (!mapped) {
      throw ckpt::Error(ckpt::Errc::unsupported, "tensor '" + tensor.name + "' isn't stored so that it can be mapped");
    }
    mapping->data = mapped->data();
    mapping->size = mapped->size();
    const auto pages = mapped->release();
    mapping->pages = pages.begin;
    mapping->pages_size = pages.size;
  });
}

void ckpt_unmap(ckpt_mapping* mapping) {
  if (mapping == nullptr || mapping->pages == nullptr) return;
  (void)::munmap(mapping->pages, mapping->pages_size);
  mapping->pages = nullptr;
}

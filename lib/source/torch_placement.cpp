// SPDX-License-Identifier: Apache-2.0
// Brings a tree of tensors together with the places of its storages, and checks that every view lies inside its
// storage: past this point no tensor can point outside the file.
#include "core/bytes.hpp"
#include "source/torch_tensors.hpp"
#include "source/torch_types.hpp"

#include <algorithm>
#include <utility>

namespace ckpt::source {
namespace {

/// Element size of a storage in bytes; sub-byte types are counted in bytes.
std::uint64_t unit_of(DType dtype) { return std::max(1U, bits_of(dtype) / 8); }

/// The type of a storage of a class without a name here: what its size allows.
DType guess_stated(const Storage& storage, const Place& place) {
  if (storage.elements == 0 || place.size % storage.elements != 0) return DType::opaque;
  return dtype_of_width(place.size / storage.elements).value_or(DType::opaque);
}

/// The type of a view of a type without a name here; only a view that fills its storage says its width.
DType guess_view(const Tensor& tensor, const Place& place) {
  const auto count = element_count(tensor);
  if (!count || *count == 0 || tensor.offset != 0 || !is_contiguous(tensor) || place.size % *count != 0) {
    return DType::opaque;
  }
  return dtype_of_width(place.size / *count).value_or(DType::opaque);
}

enum class Outcome { placed, left_out, outside };

Outcome place_tensor(Tensor& tensor, const Place& place, DType stated) {
  if (tensor.dtype == DType::opaque) tensor.dtype = stated;
  if (tensor.dtype == DType::opaque) tensor.dtype = guess_view(tensor, place);
  if (tensor.dtype == DType::opaque) return Outcome::left_out;
  if (element_count(tensor) == 0) {
    tensor.offset = 0;
    return Outcome::placed;
  }
  const auto bits = checked_mul(tensor.offset, bits_of(tensor.dtype));
  if (!bits) return Outcome::outside;
  if (*bits % 8 != 0) return Outcome::left_out;
  tensor.offset = *bits / 8;
  const auto end = view_end(tensor);
  if (!end || *end > place.size) return Outcome::outside;
  tensor.offset += place.offset;
  return Outcome::placed;
}

}  // namespace

std::optional<std::string> place_tensors(TensorTree& tree, std::span<const std::optional<Place>> places, Parsed& to) {
  std::vector<DType> stated(tree.storages.size(), DType::opaque);
  for (std::size_t i = 0; i < tree.storages.size(); ++i) {
    if (!places[i]) continue;
    Storage& storage = tree.storages[i];
    const Place& place = *places[i];
    if (storage.stated == DType::opaque) {
      stated[i] = guess_stated(storage, place);
      if (storage.dtype == DType::opaque) storage.dtype = stated[i];
    } else {
      const auto needed = checked_mul(storage.elements, unit_of(storage.stated));
      if (!needed || *needed > place.size) {
        return "storage '" + std::string(storage.key) + "' should have " + std::to_string(storage.elements) +
               " elements of " + std::string(name_of(storage.stated)) + ", but has " + std::to_string(place.size) +
               " bytes at offset " + std::to_string(place.offset);
      }
    }
  }

  std::size_t kept = tree.first;
  for (std::size_t i = 0; i < tree.storage_of.size(); ++i) {
    Tensor& tensor = to.tensors[tree.first + i];
    const std::uint32_t storage = tree.storage_of[i];
    if (storage != TensorTree::no_storage) {
      if (!places[storage]) continue;
      const Outcome outcome = place_tensor(tensor, *places[storage], stated[storage]);
      if (outcome == Outcome::left_out) continue;
      if (outcome == Outcome::outside) {
        return "tensor '" + tensor.name + "' reaches outside its storage '" + std::string(tree.storages[storage].key) +
               "' of " + std::to_string(places[storage]->size) + " bytes at offset " +
               std::to_string(places[storage]->offset);
      }
    }
    if (kept != tree.first + i) to.tensors[kept] = std::move(tensor);
    ++kept;
  }
  to.tensors.resize(kept);

  to.extents.reserve(to.extents.size() + tree.storages.size());
  advise_huge(to.extents);
  for (std::size_t i = 0; i < tree.storages.size(); ++i) {
    const DType dtype = tree.storages[i].dtype;
    if (!places[i] || dtype == DType::opaque) continue;
    const std::uint64_t size = places[i]->size - places[i]->size % unit_of(dtype);
    if (size > 0) to.extents.push_back({places[i]->offset, size, dtype});
  }
  return std::nullopt;
}

void settle_extents(std::vector<Extent>& extents) {
  const auto by_offset = [](const Extent& a, const Extent& b) { return a.offset < b.offset; };
  if (!std::is_sorted(extents.begin(), extents.end(), by_offset)) {
    std::stable_sort(extents.begin(), extents.end(), by_offset);
  }
  std::uint64_t end = 0;
  std::erase_if(extents, [&](const Extent& extent) {
    if (extent.offset < end) return true;
    end = extent.offset + extent.size;
    return false;
  });
}

}  // namespace ckpt::source

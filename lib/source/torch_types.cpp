// SPDX-License-Identifier: Apache-2.0
// The tables behind torch_types.hpp.
#include "source/torch_types.hpp"

#include <utility>

namespace ckpt::source {
namespace {

using namespace std::string_view_literals;

template <class Value, std::size_t n>
std::optional<Value> find_in(const std::pair<std::string_view, Value> (&table)[n], std::string_view key) {
  for (const auto& [name, value] : table) {
    if (name == key) return value;
  }
  return std::nullopt;
}

constexpr std::pair<std::string_view, DType> storages[] = {
    {"FloatStorage"sv, DType::float32},
    {"BFloat16Storage"sv, DType::bfloat16},
    {"HalfStorage"sv, DType::float16},
    {"LongStorage"sv, DType::int64},
    {"ByteStorage"sv, DType::uint8},
    {"DoubleStorage"sv, DType::float64},
    {"IntStorage"sv, DType::int32},
    {"ShortStorage"sv, DType::int16},
    {"CharStorage"sv, DType::int8},
    {"BoolStorage"sv, DType::boolean},
    {"ComplexDoubleStorage"sv, DType::complex128},
    {"ComplexFloatStorage"sv, DType::complex64},
    {"QInt8Storage"sv, DType::qint8},
    {"QUInt8Storage"sv, DType::quint8},
    {"QInt32Storage"sv, DType::qint32},
    {"QUInt4x2Storage"sv, DType::quint4x2},
    {"QUInt2x4Storage"sv, DType::quint2x4},
    {"UntypedStorage"sv, DType::uint8},
    {"_UntypedStorage"sv, DType::uint8},
};

constexpr std::pair<std::string_view, Layout> layouts[] = {
    {"torch.sparse_coo"sv, Layout::sparse_coo}, {"torch.sparse_csr"sv, Layout::sparse_csr},
    {"torch.sparse_csc"sv, Layout::sparse_csc}, {"torch.sparse_bsr"sv, Layout::sparse_bsr},
    {"torch.sparse_bsc"sv, Layout::sparse_bsc}, {"torch.jagged"sv, Layout::nested},
};

constexpr std::pair<std::string_view, Rebuild> torch_functions[] = {
    {"_rebuild_tensor_v2"sv, Rebuild::tensor},
    {"_rebuild_parameter"sv, Rebuild::parameter},
    {"_rebuild_tensor_v3"sv, Rebuild::tensor_v3},
    {"_rebuild_from_type_v2"sv, Rebuild::from_type},
    {"_rebuild_from_type"sv, Rebuild::from_type},
    {"_rebuild_wrapper_subclass"sv, Rebuild::wrapper_subclass},
    {"Size"sv, Rebuild::size},
    {"_get_layout"sv, Rebuild::layout},
    {"_rebuild_tensor"sv, Rebuild::tensor},
    {"_rebuild_parameter_with_state"sv, Rebuild::parameter_state},
    {"_rebuild_sparse_tensor"sv, Rebuild::sparse},
    {"_rebuild_sparse_csr_tensor"sv, Rebuild::sparse},
    {"_rebuild_qtensor"sv, Rebuild::quantized},
    {"_rebuild_nested_tensor"sv, Rebuild::nested},
    {"_rebuild_njt"sv, Rebuild::jagged},
    {"_rebuild_meta_tensor_no_storage"sv, Rebuild::meta},
    {"_rebuild_device_tensor_from_numpy"sv, Rebuild::from_numpy},
    {"_rebuild_xla_tensor"sv, Rebuild::from_numpy},
    {"_rebuild_device_tensor_from_cpu_tensor"sv, Rebuild::content},
    {"restore_type_tag"sv, Rebuild::content},
};

constexpr std::pair<std::string_view, Rebuild> python_classes[] = {
    {"OrderedDict"sv, Rebuild::pairs},    {"dict"sv, Rebuild::pairs},
    {"defaultdict"sv, Rebuild::pairs},    {"Counter"sv, Rebuild::pairs},
    {"set"sv, Rebuild::content},          {"frozenset"sv, Rebuild::content},
    {"list"sv, Rebuild::content},         {"tuple"sv, Rebuild::content},
    {"deque"sv, Rebuild::content},        {"_reconstructor"sv, Rebuild::reconstructor},
    {"mappingproxy"sv, Rebuild::content},
};

}  // namespace

DType dtype_of_storage(std::string_view class_name) { return find_in(storages, class_name).value_or(DType::opaque); }

std::string_view storage_class_of(DType dtype) {
  for (const auto& [name, type] : storages) {
    if (type == dtype && !name.starts_with('Q')) return name;
  }
  return {};
}

bool is_untyped_storage(std::string_view class_name) {
  return class_name == "UntypedStorage" || class_name == "_UntypedStorage";
}

Layout layout_from_torch(std::string_view name) { return find_in(layouts, name).value_or(Layout::strided); }

DType width_only(DType dtype) {
  const unsigned bits = bits_of(dtype);
  if (bits <= 8 || dtype == DType::opaque) return dtype;
  return dtype_of_width(bits / 8).value_or(DType::opaque);
}

std::optional<DType> dtype_of_width(std::uint64_t bytes) {
  switch (bytes) {
    case 1: return DType::width8;
    case 2: return DType::width16;
    case 4: return DType::width32;
    case 8: return DType::width64;
    case 16: return DType::width128;
    default: return std::nullopt;
  }
}

Rebuild rebuild_of(std::string_view module, std::string_view name) {
  if (module.starts_with("torch")) return find_in(torch_functions, name).value_or(Rebuild::unknown);
  const bool python = module == "collections" || module == "builtins" || module == "__builtin__" ||
                      module == "copyreg" || module == "copy_reg" || module == "types";
  return python ? find_in(python_classes, name).value_or(Rebuild::unknown) : Rebuild::unknown;
}

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// Strings and globals that come again are fetched from the memo, as Python's own pickler does: of a large state that's
// most of the bytes. Everything else is written out.
#include "source/torch_pickle_writer.hpp"

#include "core/bytes.hpp"
#include "format/json_text.hpp"
#include "source/torch_types.hpp"

#include <ckpt/error.hpp>

#include <unordered_map>

namespace ckpt::source {
namespace {

/// Python's pickler sets so many items at a time, which bounds the reader's stack.
constexpr std::size_t batch = 1000;

class PickleWriter {
 public:
  PickleWriter() { out_ = "\x80\x02"; }

  void code(char opcode) { out_ += opcode; }

  void number(std::uint64_t value) {
    if (value < 0x100) return operation('K', value, 1);
    if (value < 0x10000) return operation('M', value, 2);
    if (value < 0x80000000U) return operation('J', value, 4);
    // Two's complement of as many bytes as it needs, one for the sign included.
    unsigned bytes = 5;
    while (bytes < 9 && value >> (8 * bytes - 1) != 0) ++bytes;
    operation('\x8a', bytes, 1);
    append(value, bytes < 9 ? bytes : 8);
    if (bytes == 9) code('\0');
  }

  /// A string that isn't expected again.
  void text(std::string_view value) {
    operation('X', value.size(), 4);
    out_ += value;
  }
  void shared_text(std::string_view value) {
    if (!fetch(value)) {
      text(value);
      memorize(std::string(value));
    }
  }
  void global(std::string_view module, std::string_view name) {
    std::string line = "c" + std::string(module) + "\n" + std::string(name) + "\n";
    if (fetch(line)) return;
    out_ += line;
    memorize(std::move(line));
  }

  void numbers(std::span<const std::int64_t> values) {
    if (values.empty()) return code(')');
    if (values.size() > 3) code('(');
    for (const std::int64_t value : values) number(static_cast<std::uint64_t>(value));
    code(values.size() > 3 ? 't' : static_cast<char>(0x84U + values.size()));
  }

  [[nodiscard]] std::string finish() {
    code('.');
    return std::move(out_);
  }

 private:
  void append(std::uint64_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) out_ += static_cast<char>((value >> (8 * i)) & 0xffU);
  }
  void operation(char opcode, std::uint64_t value, unsigned bytes) {
    code(opcode);
    append(value, bytes);
  }
  bool fetch(std::string_view what) {
    const auto known = memo_.find(std::string(what));
    if (known == memo_.end()) return false;
    known->second < 0x100 ? operation('h', known->second, 1) : operation('j', known->second, 4);
    return true;
  }
  void memorize(std::string what) {
    const std::uint64_t place = memo_.size();
    place < 0x100 ? operation('q', place, 1) : operation('r', place, 4);
    memo_.emplace(std::move(what), place);
  }

  std::string out_;
  std::unordered_map<std::string, std::uint64_t> memo_;
};

/// The type of each storage that is typed.
using StorageTypes = std::unordered_map<std::string_view, DType>;

StorageTypes types_of_storages(std::span<const PickledTensor> tensors) {
  StorageTypes types;
  for (const PickledTensor& tensor : tensors) {
    const bool typed =
        !storage_class_of(tensor.dtype).empty() && tensor.storage_bytes % (bits_of(tensor.dtype) / 8) == 0;
    const DType type = typed ? tensor.dtype : DType::opaque;
    const auto [known, is_new] = types.emplace(tensor.storage_key, type);
    if (!is_new && known->second != type) known->second = DType::opaque;
  }
  return types;
}

void require_writable(const PickledTensor& tensor) {
  const std::string name(tensor.name);
  if (!format::json_text(name)) {
    throw Error(Errc::unsupported, "tensor '" + name + "' has a name that isn't UTF-8, which a pickle can't hold");
  }
  if (can_be_pickled(tensor.dtype)) return;
  throw Error(Errc::unsupported, "tensor '" + name + "' is of type " + std::string(name_of(tensor.dtype)) +
                                     ", which PyTorch has no plain tensors of");
}

void put_tensor(PickleWriter& to, const PickledTensor& tensor, DType storage_type) {
  const bool typed = storage_type != DType::opaque;
  to.global("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  to.code('(');
  to.code('(');
  to.shared_text("storage");
  if (typed) {
    to.global("torch", storage_class_of(storage_type));
  } else {
    to.global("torch.storage", "UntypedStorage");
  }
  to.shared_text(tensor.storage_key);
  to.shared_text("cpu");
  to.number(typed ? tensor.storage_bytes / (bits_of(storage_type) / 8) : tensor.storage_bytes);
  to.code('t');
  to.code('Q');
  to.number(tensor.offset);
  to.numbers(tensor.shape);
  to.numbers(tensor.strides);
  to.code('\x89');  // needs no gradient
  to.global("collections", "OrderedDict");
  to.code(')');
  to.code('R');
  if (!typed) to.global("torch", name_of(tensor.dtype));
  to.code('t');
  to.code('R');
}

}  // namespace

bool can_be_pickled(DType dtype) {
  switch (dtype) {
    case DType::opaque:
    case DType::qint8:
    case DType::quint8:
    case DType::qint32:
    case DType::quint4x2:
    case DType::quint2x4:
    case DType::float4:
    case DType::float6_e2m3:
    case DType::float6_e3m2:
    case DType::width8:
    case DType::width16:
    case DType::width32:
    case DType::width64:
    case DType::width128: return false;
    default: return true;
  }
}

std::string pickle_of(std::span<const PickledTensor> tensors) {
  for (const PickledTensor& tensor : tensors) require_writable(tensor);
  const StorageTypes types = types_of_storages(tensors);
  PickleWriter to;
  to.code('}');
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (i % batch == 0) to.code('(');
    to.text(tensors[i].name);
    put_tensor(to, tensors[i], types.at(tensors[i].storage_key));
    if (i % batch == batch - 1 || i + 1 == tensors.size()) to.code('u');
  }
  return to.finish();
}

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// Small pairs of files and what diff() says of them.
#pragma once

#include "export_support.hpp"
#include "torch_writer.hpp"

#include <ckpt/diff.hpp>

#include <algorithm>
#include <initializer_list>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace diff_test {

inline ckpt::DiffReport compare(const std::string& a, const std::string& b, ckpt::DiffOptions options = {}) {
  ckpt::Monitor monitor;
  options.a = a;
  options.b = b;
  if (options.jobs == 0) options.jobs = 2;
  return ckpt::diff(options, monitor);
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return std::string(ckpt::as_text(std::as_bytes(std::span(values))));
}

inline const ckpt::TensorDiff& find(const ckpt::DiffReport& report, const std::string& name) {
  for (const ckpt::TensorDiff& tensor : report.tensors) {
    if (tensor.name == name) return tensor;
  }
  throw std::runtime_error("no tensor " + name);
}

/// "changed epoch: 5 -> 6", each on a line.
inline std::string values_of(const ckpt::DiffReport& report) {
  std::string text;
  for (const ckpt::ValueDiff& value : report.values) {
    text += std::string(ckpt::to_string(value.change)) + " " + value.path + ": " + value.old_value + " -> " +
            value.new_value + "\n";
  }
  return text;
}

inline std::string files_of(const ckpt::DiffReport& report) {
  std::string text;
  for (const ckpt::FileDiff& file : report.files) {
    text += std::string(ckpt::to_string(file.change)) + " " + (file.a ? file.a->file : "") + " -> " +
            (file.b ? file.b->file : "") + " " + std::to_string(file.changed_bytes) + "\n";
  }
  return text;
}

/// A view as torch writes it.
inline std::string view(const std::string& on, std::uint32_t offset, std::initializer_list<std::uint32_t> shape,
                        std::initializer_list<std::uint32_t> strides) {
  const auto numbers = [](std::initializer_list<std::uint32_t> from) {
    std::string out = "(";
    for (const std::uint32_t number : from) out += torch_writer::integer(number);
    return out + "t";
  };
  using namespace torch_writer;
  return call(utils("_rebuild_tensor_v2"), tuple({on, integer(offset), numbers(shape), numbers(strides), "\x89", "}"}));
}

}  // namespace diff_test

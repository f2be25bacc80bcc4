// SPDX-License-Identifier: Apache-2.0
// Small safetensors files and stores made of them, for the tests of exports and listings.
#pragma once

#include "ops/export_source.hpp"
#include "scratch.hpp"
#include "source_support.hpp"
#include "store/store.hpp"

#include <ckpt/list.hpp>
#include <ckpt/restore.hpp>
#include <ckpt/save.hpp>

#include <nlohmann/json.hpp>

#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace export_test {

inline void write_file(const std::string& path, const std::string& content) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream stream(path, std::ios::binary);
  stream << content;
  stream.close();
  if (!stream) throw std::runtime_error("cannot write " + path);
}

struct Named {
  std::string name;
  std::string type;  ///< as safetensors calls it
  std::vector<std::int64_t> shape;
  std::string bytes;
};

inline std::string safetensors_of(const std::vector<Named>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::string buffer;
  for (const Named& tensor : tensors) {
    header[tensor.name] = {{"dtype", tensor.type},
                           {"shape", tensor.shape},
                           {"data_offsets", {buffer.size(), buffer.size() + tensor.bytes.size()}}};
    buffer += tensor.bytes;
  }
  const std::string text = header.dump();
  std::string file(8, '\0');
  ckpt::store_le<std::uint64_t>(std::as_writable_bytes(std::span(file)).data(), text.size());
  return file + text + buffer;
}

inline void save(const std::string& store, const std::vector<std::string>& sources, std::uint64_t step = 1,
                 std::uint32_t rank = 0, std::uint32_t world_size = 1) {
  ckpt::Monitor monitor;
  ckpt::SaveOptions options;
  options.store = store;
  options.step = step;
  options.sources = sources;
  options.rank = rank;
  options.world_size = world_size;
  options.jobs = 2;
  (void)ckpt::save(options, monitor);
}

inline ckpt::ExportOptions options_for(const std::string& store, std::vector<std::string> tensors,
                                       ckpt::ExportFormat format, const std::string& output) {
  ckpt::ExportOptions options;
  options.from = ckpt::parse_address(store);
  options.tensors = std::move(tensors);
  options.as = format;
  options.output = output;
  options.force = true;
  options.jobs = 2;
  return options;
}

/// What is in the output afterwards.
inline std::string exported(const ckpt::ExportOptions& options) {
  ckpt::Monitor monitor;
  const ckpt::ExportReport report = ckpt::export_tensors(options, monitor);
  std::string content = source_test::read_file(options.output);
  if (report.bytes != content.size()) throw std::runtime_error("the report counts other bytes");
  return content;
}

struct Failure {
  ckpt::Errc code = ckpt::Errc::interrupted;
  std::string message = "(none)";
};

/// The Error that `act` throws.
inline Failure failure_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const ckpt::Error& error) {
    return {.code = error.code(), .message = error.what()};
  }
  return {};
}

inline bool mentions(const Failure& failure, const std::string& text) {
  return failure.message.find(text) != std::string::npos;
}

}  // namespace export_test

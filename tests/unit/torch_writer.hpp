// SPDX-License-Identifier: Apache-2.0
// Just enough of pickle and zip to write what the parsers' tests need: opcodes as text, archives in torch's layout.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torch_writer {

inline std::string little(std::uint64_t value, unsigned bytes) {
  std::string out;
  for (unsigned i = 0; i < bytes; ++i, value = value >> 8U) out.push_back(static_cast<char>(value & 0xffU));
  return out;
}

inline std::string text(std::string_view value) { return "X" + little(value.size(), 4) + std::string(value); }
inline std::string integer(std::uint32_t value) { return "J" + little(value, 4); }
inline std::string global(std::string_view module, std::string_view name) {
  return "c" + std::string(module) + "\n" + std::string(name) + "\n";
}
inline std::string tuple(std::initializer_list<std::string> elements) {
  std::string out = "(";
  for (const std::string& element : elements) out += element;
  return out + "t";
}
inline std::string list(std::initializer_list<std::string> elements) {
  std::string out = "](";
  for (const std::string& element : elements) out += element;
  return out + "e";
}
inline std::string dict(std::initializer_list<std::pair<std::string, std::string>> entries) {
  std::string out = "}(";
  for (const auto& [key, value] : entries) out += key + value;
  return out + "u";
}
inline std::string call(const std::string& callee, const std::string& args) { return callee + args + "R"; }
/// An instance with a state.
inline std::string instance(const std::string& type, const std::string& state) { return type + ")\x81" + state + "b"; }
inline std::string pickle(const std::string& body) { return "\x80\x02" + body + "."; }

inline std::string storage(std::string_view type, std::string_view key, std::uint32_t elements) {
  const std::string_view module = type == "UntypedStorage" ? "torch.storage" : "torch";
  return tuple({text("storage"), global(module, type), text(key), text("cpu"), integer(elements)}) + "Q";
}
inline std::string utils(std::string_view name) { return global("torch._utils", name); }

/// One dimension, from the storage's start.
inline std::string vector_on(const std::string& on, std::uint32_t size, std::uint32_t offset = 0) {
  return call(utils("_rebuild_tensor_v2"),
              tuple({on, integer(offset), tuple({integer(size)}), tuple({integer(1)}), "\x89", "}"}));
}
/// `size` floats that fill the storage `key`.
inline std::string floats(std::string_view key, std::uint32_t size) {
  return vector_on(storage("FloatStorage", key, size), size);
}

/// A zip whose local headers hold no sizes, as torch writes them.
class Zip {
 public:
  void add(std::string_view name, std::string_view data, unsigned method = 0) {
    const std::string padding(7, 'Z');
    directory_ += little(0x02014b50, 4) + little(0, 4) + little(0x0808, 2) + little(method, 2) + little(0, 8) +
                  little(data.size(), 4) + little(data.size(), 4) + little(name.size(), 2) + little(0, 12) +
                  little(bytes_.size(), 4) + std::string(name);
    bytes_ += little(0x04034b50, 4) + little(0, 2) + little(0x0808, 2) + little(method, 2) + little(0, 16) +
              little(name.size(), 2) + little(padding.size() + 4, 2) + std::string(name) + "FB" +
              little(padding.size(), 2) + padding + std::string(data);
    ++entries_;
  }

  [[nodiscard]] std::string finish() const {
    const std::uint64_t at = bytes_.size();
    std::string end;
    if (entries_ > 0xfffe) {
      end += little(0x06064b50, 4) + little(44, 8) + little(0, 12) + little(entries_, 8) + little(entries_, 8) +
             little(directory_.size(), 8) + little(at, 8);
      end += little(0x07064b50, 4) + little(0, 4) + little(at + directory_.size(), 8) + little(1, 4);
    }
    const std::uint64_t shown = entries_ > 0xfffe ? 0xffff : entries_;
    end += little(0x06054b50, 4) + little(0, 4) + little(shown, 2) + little(shown, 2) + little(directory_.size(), 4) +
           little(at, 4) + little(0, 2);
    return bytes_ + directory_ + end;
  }

 private:
  std::string bytes_;
  std::string directory_;
  std::uint64_t entries_ = 0;
};

/// An archive with this data.pkl and these records.
inline std::string archive(const std::string& object,
                           std::initializer_list<std::pair<std::string, std::string>> records,
                           const std::string& root = "archive") {
  Zip zip;
  zip.add(root + "/data.pkl", pickle(object));
  for (const auto& [key, data] : records) zip.add(root + "/data/" + key, data);
  return zip.finish();
}

}  // namespace torch_writer

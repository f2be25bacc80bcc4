// SPDX-License-Identifier: Apache-2.0
// Chooses the parser by a file's first bytes, with its name as the tie-breaker, and turns the parser's verdict into
// what it means for a file of that name: only a file that claims to be of a kind can be malformed.
#include "source/parse.hpp"

#include "core/bytes.hpp"
#include "os/small_file.hpp"
#include "source/dcp.hpp"
#include "source/npy.hpp"
#include "source/safetensors.hpp"
#include "source/torch_legacy.hpp"
#include "source/torch_tensors.hpp"
#include "source/torch_zip.hpp"
#include "source/verdict.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace ckpt::source {
namespace {

using namespace std::string_view_literals;

constexpr std::uint64_t head_size = 64;

std::string extension_of(std::string_view path) {
  const std::string_view name = os::last_name_of(path);
  const std::size_t dot = name.rfind('.');
  std::string extension(dot == std::string_view::npos ? std::string_view{} : name.substr(dot));
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return extension;
}

/// Names whose files claim to be of a kind.
bool claims_kind(std::string_view extension) {
  constexpr std::string_view claiming[] = {".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".distcp"};
  return std::find(std::begin(claiming), std::end(claiming), extension) != std::end(claiming);
}

Parsed opaque(std::string note = {}) {
  Parsed parsed;
  parsed.note = std::move(note);
  return parsed;
}

Parsed malformed(std::string what) {
  Parsed parsed;
  parsed.malformed = std::move(what);
  return parsed;
}

/// `claims`: the name says that this is the file's kind.
Parsed settle(Verdict&& verdict, FileKind kind, bool claims, Parsed&& parsed) {
  switch (verdict.kind) {
    case Verdict::Kind::fine:
      parsed.kind = kind;
      settle_extents(parsed.extents);
      return std::move(parsed);
    case Verdict::Kind::malformed:
      return claims ? malformed(std::move(verdict.message)) : opaque(std::move(verdict.message));
    default: return opaque(std::move(verdict.message));
  }
}

Parsed parse_zip(const Input& input, bool claims) {
  Parsed parsed;
  ZipResult zip = read_zip_directory(input, 0, input.size());
  if (zip.status != ZipStatus::complete) {
    return settle(verdict_of(std::move(zip)), FileKind::opaque, claims, std::move(parsed));
  }
  UniqueNames names;
  Verdict verdict = parse_torch_archive(input, zip.directory, {}, names, parsed);
  if (verdict.kind != Verdict::Kind::foreign) {
    return settle(std::move(verdict), FileKind::torch_zip, claims, std::move(parsed));
  }
  // numpy's files have no name that claims a kind.
  Verdict arrays = parse_npz(input, zip.directory, names, parsed);
  if (arrays.kind != Verdict::Kind::foreign) return settle(std::move(arrays), FileKind::npz, false, std::move(parsed));
  return opaque(std::move(verdict.message));
}

template <class Parser>
Parsed parse_with(const Parser& parser, FileKind kind, bool claims) {
  Parsed parsed;
  Verdict verdict = parser(parsed);
  return settle(std::move(verdict), kind, claims, std::move(parsed));
}

/// A length that a safetensors file of this size can have, and the brace after it.
bool plausible_safetensors(ByteView head, std::uint64_t size) {
  return head.size() >= 9 && looks_like_safetensors(head) && load_le<std::uint64_t>(head.data()) <= size - 8;
}

}  // namespace

Parsed parse(std::string_view path, const Input& input, const Siblings& siblings) {
  const std::string extension = extension_of(path);
  const bool claims = claims_kind(extension);
  if (input.size() == 0) return claims ? malformed("cut short: it's empty") : opaque();
  Bytes head(static_cast<std::size_t>(std::min(input.size(), head_size)));
  input.read(0, head);

  const std::string_view start = as_text(head);
  constexpr std::string_view zip_start = "PK\x03\x04"sv;
  // An archive without entries consists of its end record alone.
  constexpr std::string_view empty_zip_start = "PK\x05\x06"sv;
  if (start.starts_with(zip_start) || start.starts_with(empty_zip_start)) {
    if (extension != ".distcp") return parse_zip(input, claims);
    return parse_with([&](Parsed& to) { return parse_distcp(path, input, siblings, to); }, FileKind::distcp, true);
  }
  const bool torch_name = claims && extension != ".safetensors";
  if (torch_name && zip_start.starts_with(start)) return malformed("cut short: it ends inside the first zip header");

  const LegacyStart legacy = looks_like_torch_legacy(head);
  if (legacy == LegacyStart::yes) {
    return parse_with([&](Parsed& to) { return parse_torch_legacy(input, to); }, FileKind::torch_legacy, claims);
  }
  if (legacy == LegacyStart::perhaps && torch_name) return malformed("cut short: it ends inside the magic number");

  if (extension == ".safetensors" && looks_like_safetensors(head)) {
    return parse_with([&](Parsed& to) { return parse_safetensors(input, to); }, FileKind::safetensors, true);
  }
  if (plausible_safetensors(head, input.size())) {
    Parsed parsed = parse_with([&](Parsed& to) { return parse_safetensors(input, to); }, FileKind::safetensors, false);
    return parsed.kind == FileKind::safetensors ? parsed : opaque();
  }
  if (looks_like_npy(head)) {
    return parse_with([&](Parsed& to) { return parse_npy(input, 0, input.size(), "(root)", to); }, FileKind::npy,
                      false);
  }
  if (os::last_name_of(path) == ".metadata" && is_dcp_metadata(input)) {
    Parsed parsed;
    parsed.kind = FileKind::dcp_metadata;
    return parsed;
  }
  return opaque();
}

}  // namespace ckpt::source

// SPDX-License-Identifier: Apache-2.0
// Says in what two checkpoints differ: tensors by their values, plain values by their place in the pickle or JSON,
// other files by their bytes. Nothing is executed and nothing is written.
//
// Files pair by path, else by position among the unpaired files of their kind, since trainers put steps into names; a
// different name alone is no difference. Tensors pair by name and global offsets, those of a pair of files first, then
// wherever they are; those that the two sides cut into other parts (by another number of ranks, say) are compared as
// wholes, and a rank that one side alone has may hold replicas of what the other side's ranks hold. Blocks that both sides hold with the same hash and size aren't read.
#pragma once

#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt {

/// An element b is as good as a if |b - a| <= absolute + relative * |a|, or if both are NaN, or equal.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

struct DiffOptions {
  std::string a;  ///< STORE[@STEP] (no step: the latest), a file or a directory
  std::string b;
  /// Without one, an element has changed if its bits have.
  std::optional<Tolerance> tolerance;
  /// Relative L2, cosine, NaN and Inf are of all elements, not only of those that changed. Reads what is equal, too.
  bool whole = false;
  unsigned jobs = 0;
};

/// Sums over pairs of elements, from which all numbers follow; they add up over tensors. Pairs with a NaN or an
/// infinity on either side count in `elements`, `changed` and the four counts, and in no sum. A complex element is one
/// element and two terms of the sums.
struct DiffNumbers {
  std::uint64_t elements = 0;
  std::uint64_t changed = 0;
  double max_abs = 0;           ///< the largest |b - a|
  long double sum_abs = 0;      ///< of |b - a|
  long double sum_squares = 0;  ///< of (b - a)^2
  // Of the elements that changed, or of all, see DiffOptions::whole.
  long double squares_a = 0;
  long double squares_b = 0;
  long double products = 0;
  std::uint64_t nan_a = 0, nan_b = 0, inf_a = 0, inf_b = 0;

  CKPT_API DiffNumbers& operator+=(const DiffNumbers& other);
  /// Over all elements.
  [[nodiscard]] CKPT_API double mean_abs() const;
  [[nodiscard]] CKPT_API double l2() const;
  /// |b - a| / |a|, as 2-norms. 0 if nothing differs, infinite if only a is zero.
  [[nodiscard]] CKPT_API double relative_l2() const;
  /// Nothing if a or b is zero.
  [[nodiscard]] CKPT_API std::optional<double> cosine() const;
};

enum class Change {
  same,      ///< tensors alone are reported when they're the same
  added,     ///< in b alone
  removed,   ///< in a alone
  reshaped,  ///< another shape, or another place in a larger tensor
  retyped,   ///< another element type or layout
  changed,
};
[[nodiscard]] CKPT_API std::string_view to_string(Change change);

/// A tensor, a file or a value as one side has it. What a side doesn't have is empty.
struct DiffPlace {
  std::string file;
  std::uint32_t rank = 0;
};

struct TensorDiff {
  Change change = Change::same;
  std::string name;
  std::optional<DiffPlace> a, b;  ///< of its first part, if it's compared as a whole
  std::string dtype_a, dtype_b;
  std::vector<std::int64_t> shape_a, shape_b;
  std::vector<std::int64_t> global_offsets;  ///< of a part of a larger tensor
  std::uint64_t bytes = 0;                   ///< of its contiguous form; the larger one
  std::uint64_t elements = 0;                ///< the larger number
  /// Nothing for added and removed ones, for those without bytes (meta), and where elements can't be paired. Of types
  /// without values (raw bits) it holds the counts alone.
  std::optional<DiffNumbers> numbers;
  bool has_values = false;  ///< false: of `numbers` the counts alone mean something
};

/// Something in a pickle or JSON that isn't a tensor.
struct ValueDiff {
  Change change = Change::changed;
  std::string path;  ///< keys, attributes and indexes, joined by dots
  std::optional<DiffPlace> a, b;
  std::string old_value;  ///< as Python writes it, shortened where it's long; empty: none
  std::string new_value;
};

/// A file without tensors, or whose tensors have all no partner, or a link.
struct FileDiff {
  Change change = Change::changed;
  std::optional<DiffPlace> a, b;
  std::string kind;  ///< "opaque" and so on, "symlink", "hardlink"
  std::uint64_t size_a = 0, size_b = 0;
  std::uint64_t changed_bytes = 0;  ///< that differ, and those by which one is longer
  std::string old_value;            ///< of a link its target, of a short text the text
  std::string new_value;
};

/// Sums over the tensors whose names begin with a prefix.
struct ModuleDiff {
  std::string prefix;  ///< empty: all
  unsigned depth = 0;  ///< dots in it, plus one; 0 for all
  std::uint64_t tensors = 0;
  std::uint64_t differing = 0;
  std::uint64_t added = 0, removed = 0;
  std::uint64_t bytes = 0;
  DiffNumbers numbers;
};

struct DiffReport {
  std::string a, b;                 ///< what was compared: an address with its step, or a path
  std::vector<TensorDiff> tensors;  ///< all of them, in the order of a, then those that b alone has
  std::vector<ValueDiff> values;
  std::vector<FileDiff> files;
  std::uint64_t more_values = 0;  ///< that differ too and aren't listed: there are very many
  std::uint64_t bytes_read = 0;   ///< of both sides, of tensors and opaque files
  bool whole = false;             ///< as asked for
  double seconds = 0;

  [[nodiscard]] CKPT_API bool same() const;
};

/// Memory is bounded by a few blocks a thread, whatever the sizes are, besides the lists of tensors and the pickles of
/// one pair of files a thread.
///
/// Errors: invalid_argument; not_found; malformed (a damaged input); damaged (stored bytes fail their check); busy (an
/// input is open for writing, or changed while it was read); unsupported; io; interrupted.
[[nodiscard]] CKPT_API DiffReport diff(const DiffOptions& options, Monitor& monitor);

/// Every prefix, ordered as a tree: a prefix comes before those that it begins.
[[nodiscard]] CKPT_API std::vector<ModuleDiff> sum_by_module(const DiffReport& report);

/// An SVG picture of where in the network the change is: the tree of modules by depth, each as high as its tensors
/// weigh, coloured by relative change. Text and tooltips need no script. Pure; deterministic.
[[nodiscard]] CKPT_API std::string draw_diff(const DiffReport& report);

/// Writes a text to a file: beside it, then renamed over what is there. Errors: io, no_space.
CKPT_API void write_text_file(const std::string& path, std::string_view text);

}  // namespace ckpt

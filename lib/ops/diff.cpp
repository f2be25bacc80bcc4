// SPDX-License-Identifier: Apache-2.0
// Opens both sides, pairs what they hold, compares values file by file, then all elements and bytes in one go.
#include <ckpt/diff.hpp>

#include "core/pipeline.hpp"
#include "core/stop.hpp"
#include "ops/box.hpp"
#include "ops/diff_files.hpp"
#include "ops/diff_pairs.hpp"
#include "ops/diff_reshard.hpp"
#include "ops/diff_side.hpp"
#include "ops/diff_tensors.hpp"
#include "ops/diff_values.hpp"

#include <ckpt/error.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

namespace ckpt {
namespace {

using ops::Comparison;
using ops::DiffSide;
using ops::SideFile;

class Diff {
 public:
  Diff(const DiffOptions& options, Monitor& monitor)
      : options_(options),
        monitor_(monitor),
        a_(ops::open_side(options.a, options.jobs, monitor)),
        b_(ops::open_side(options.b, options.jobs, monitor)),
        files_(ops::pair_files(a_->files(), b_->files())),
        resharding_(ops::find_resharded(a_->files(), b_->files())),
        tensors_(ops::pair_tensors(a_->files(), b_->files(), files_, resharding_)) {
    for (const ops::ReshardedTensor& tensor : resharding_.tensors) resharded_names_.insert(tensor.name);
  }

  DiffReport run() {
    report_.a = a_->name();
    report_.b = b_->name();
    report_.whole = options_.whole;
    report_.files = ops::compare_presence(a_->files(), b_->files(), files_, tensors_, resharding_);
    compare_values();
    for (const ops::TensorPair& pair : tensors_) {
      if (pair.resharded) {
        add_resharded(resharding_.tensors[*pair.resharded]);
      } else {
        add_tensor(pair);
      }
    }
    compare_elements();
    a_->require_unchanged();
    b_->require_unchanged();
    return std::move(report_);
  }

 private:
  void compare_values() {
    std::vector<ops::FilePair> pairs;
    for (const ops::FilePair& pair : files_) {
      if (pair.a && pair.b && a_->files()[*pair.a].type == format::EntryType::file) pairs.push_back(pair);
    }
    const unsigned workers = worker_count(options_.jobs);
    run_ordered(
        pairs.size(), workers, std::size_t{workers} + 2,
        [&](std::size_t i) {
          require_no_stop(monitor_);
          if (ops::have_equal_blocks(*a_, *pairs[i].a, *b_, *pairs[i].b)) return ops::FileValues{};
          return ops::compare_file_values(*a_, *pairs[i].a, *b_, *pairs[i].b);
        },
        [&](std::size_t i, ops::FileValues found) {
          std::copy_if(std::make_move_iterator(found.values.begin()), std::make_move_iterator(found.values.end()),
                       std::back_inserter(report_.values),
                       [&](const ValueDiff& value) { return !tells_how_a_tensor_is_cut(value); });
          report_.more_values += found.more;
          if (!found.as_bytes) return;
          const std::size_t x = *pairs[i].a;
          const std::size_t y = *pairs[i].b;
          bytes_.push_back(ops::common_bytes(a_->files()[x], b_->files()[y]));
          comparisons_.push_back({.file_a = x, .file_b = y, .a = &bytes_.back(), .b = &bytes_.back()});
        });
  }

  /// What the object says in which the tensor is pickled: a DTensor or ShardedTensor, or none of both.
  [[nodiscard]] bool tells_how_a_tensor_is_cut(const ValueDiff& value) const {
    const std::string_view path = value.path;
    for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
      if (resharded_names_.contains(path.substr(0, dot))) return true;
    }
    return resharded_names_.contains(path);
  }

  void add_tensor(const ops::TensorPair& pair) {
    TensorDiff diff;
    const Tensor* tensors[2] = {};
    const auto look = [&](const DiffSide& side, const ops::TensorPlace& place, std::optional<DiffPlace>& where,
                          std::string& dtype, std::vector<std::int64_t>& shape) {
      const SideFile& file = side.files()[place.file];
      const Tensor& tensor = file.tensors[place.tensor];
      where = ops::place_of(file);
      dtype = name_of(tensor.dtype);
      shape = tensor.shape;
      diff.name = tensor.name;
      diff.global_offsets = tensor.global_offsets;
      diff.bytes = std::max(diff.bytes, tensor.has_bytes ? contiguous_bytes(tensor).value_or(0) : 0);
      diff.elements = std::max(diff.elements, element_count(tensor).value_or(0));
      return &tensor;
    };
    if (pair.b) tensors[1] = look(*b_, *pair.b, diff.b, diff.dtype_b, diff.shape_b);
    if (pair.a) tensors[0] = look(*a_, *pair.a, diff.a, diff.dtype_a, diff.shape_a);
    if (!pair.a || !pair.b) {
      diff.change = pair.a ? Change::removed : Change::added;
    } else {
      const auto& [x, y] = std::pair<const Tensor&, const Tensor&>(*tensors[0], *tensors[1]);
      const bool same_bytes = x.has_bytes == y.has_bytes;
      if (x.shape != y.shape || x.global_shape != y.global_shape) diff.change = Change::reshaped;
      if (x.dtype != y.dtype || name_of(x.layout) != name_of(y.layout) || !same_bytes) diff.change = Change::retyped;
      if (ops::can_compare(x, y)) {
        diff.has_values = ops::have_values(x.dtype, y.dtype);
        compared_.emplace_back(report_.tensors.size(), comparisons_.size());
        comparisons_.push_back({.file_a = pair.a->file, .file_b = pair.b->file, .a = &x, .b = &y});
      }
    }
    if (pair.replica != ops::Replica::none) replicas_.emplace_back(report_.tensors.size(), pair.replica);
    report_.tensors.push_back(std::move(diff));
  }

  /// As if it were whole on either side.
  void add_resharded(const ops::ReshardedTensor& tensor) {
    TensorDiff diff{.change = tensor.dtype_a == tensor.dtype_b ? Change::same : Change::retyped,
                    .name = tensor.name,
                    .a = ops::place_of(a_->files()[tensor.file_a]),
                    .b = ops::place_of(b_->files()[tensor.file_b]),
                    .dtype_a = std::string(name_of(tensor.dtype_a)),
                    .dtype_b = std::string(name_of(tensor.dtype_b)),
                    .shape_a = tensor.shape,
                    .shape_b = tensor.shape,
                    .elements = ops::volume_of(ops::whole_of(tensor.shape)),
                    .has_values = ops::have_values(tensor.dtype_a, tensor.dtype_b)};
    diff.bytes = std::max(bytes_of(diff.elements, tensor.dtype_a), bytes_of(diff.elements, tensor.dtype_b));
    for (const ops::CommonBox& box : tensor.boxes) {
      compared_.emplace_back(report_.tensors.size(), comparisons_.size());
      comparisons_.push_back({.file_a = box.file_a, .file_b = box.file_b, .a = &box.a, .b = &box.b});
    }
    report_.tensors.push_back(std::move(diff));
  }

  void compare_elements() {
    const ops::DiffRule rule{.tolerance = options_.tolerance, .whole = options_.whole};
    const ops::Compared compared = ops::compare_all(*a_, *b_, comparisons_, rule, options_.jobs, monitor_);
    report_.bytes_read = compared.bytes_read;
    for (const auto& [tensor, comparison] : compared_) {
      TensorDiff& diff = report_.tensors[tensor];
      if (!diff.numbers) diff.numbers.emplace();
      *diff.numbers += compared.numbers[comparison];
      if (diff.change == Change::same && diff.numbers->changed > 0) diff.change = Change::changed;
    }
    for (const auto& [tensor, side] : replicas_) leave_alone_unless_same(report_.tensors[tensor], side);
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (auto diff = ops::file_diff(*a_, *b_, comparisons_[i], compared.numbers[i])) {
        report_.files.push_back(std::move(*diff));
      }
    }
  }

  /// What isn't a replica of what it was held against has no partner after all.
  static void leave_alone_unless_same(TensorDiff& diff, ops::Replica side) {
    if (diff.change == Change::same) return;
    const bool in_a = side == ops::Replica::in_a;
    diff.change = in_a ? Change::removed : Change::added;
    (in_a ? diff.b : diff.a).reset();
    (in_a ? diff.dtype_b : diff.dtype_a).clear();
    (in_a ? diff.shape_b : diff.shape_a).clear();
    diff.numbers.reset();
    diff.has_values = false;
  }

  const DiffOptions& options_;
  Monitor& monitor_;
  std::unique_ptr<const DiffSide> a_;
  std::unique_ptr<const DiffSide> b_;
  std::vector<ops::FilePair> files_;
  ops::Resharding resharding_;
  std::set<std::string_view> resharded_names_;
  std::vector<ops::TensorPair> tensors_;
  std::vector<std::pair<std::size_t, ops::Replica>> replicas_;  ///< in report_.tensors
  DiffReport report_;
  std::vector<Comparison> comparisons_;                        ///< of bytes first, then of tensors
  std::deque<Tensor> bytes_;                                   ///< of whole files
  std::vector<std::pair<std::size_t, std::size_t>> compared_;  ///< in report_.tensors, in comparisons_; a
                                                               ///< tensor may have several
};

}  // namespace

std::string_view to_string(Change change) {
  switch (change) {
    case Change::same: return "same";
    case Change::added: return "added";
    case Change::removed: return "removed";
    case Change::reshaped: return "reshaped";
    case Change::retyped: return "retyped";
    case Change::changed: return "changed";
  }
  return "";
}

bool DiffReport::same() const {
  const auto is_same = [](const TensorDiff& diff) { return diff.change == Change::same; };
  return values.empty() && files.empty() && more_values == 0 && std::all_of(tensors.begin(), tensors.end(), is_same);
}

DiffReport diff(const DiffOptions& options, Monitor& monitor) {
  if (options.tolerance) {
    const auto usable = [](double value) { return std::isfinite(value) && value >= 0; };
    if (!usable(options.tolerance->absolute) || !usable(options.tolerance->relative)) {
      throw Error(Errc::invalid_argument, "a tolerance is a finite number, 0 or more");
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  DiffReport report = Diff(options, monitor).run();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace ckpt

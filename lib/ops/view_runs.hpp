// SPDX-License-Identifier: Apache-2.0
// Which bytes of its file a view really touches.
#pragma once

#include "core/tensor.hpp"

#include <cstdint>
#include <functional>

namespace ckpt::ops {

/// Gives the runs of neighbouring elements of `tensor` that lie as a whole inside [begin, end) of its file, as offset
/// and size in bytes. An element that an expanded or unfolded view names many times comes once; of a view that names
/// more elements than lie between its first and its last in no such order, all between them come. The view is one for
/// which view_end() has an answer, of whole bytes an element. Takes time by what lies inside, not by the view's size.
void for_each_run(const Tensor& tensor, std::uint64_t begin, std::uint64_t end,
                  const std::function<void(std::uint64_t offset, std::uint64_t size)>& consume);

}  // namespace ckpt::ops

// SPDX-License-Identifier: Apache-2.0
// The ranks of a bench: each does the same at the same time, on a thread of its own.
#pragma once

#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace ckpt::measure {

/// Calls work(rank) of each; throws what the first of those threw that failed.
template <class Work>
void on_each_rank(std::size_t ranks, Work&& work) {
  if (ranks == 1) {
    work(std::size_t{0});
    return;
  }
  std::vector<std::exception_ptr> failures(ranks);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&work, &failures, rank] {
        try {
          work(rank);
        } catch (...) {
          failures[rank] = std::current_exception();
        }
      });
    }
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace ckpt::measure

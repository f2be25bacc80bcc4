// SPDX-License-Identifier: Apache-2.0
// The workers of a bench are started by a process of their own: the bench itself runs threads, and what forks must not.
// They're its children, so it knows when they have ended and how much memory they took.
#pragma once

#include <sys/types.h>
#include <ckpt/bench.hpp>

#include <cstdint>
#include <mutex>
#include <string>

namespace ckpt::cli {

class BenchWorkerHost final : public BenchWorkers {
 public:
  /// Starts the process: while this one has one thread.
  BenchWorkerHost();
  BenchWorkerHost(const BenchWorkerHost&) = delete;
  BenchWorkerHost& operator=(const BenchWorkerHost&) = delete;
  ~BenchWorkerHost() override;

  void start(const std::string& store, const std::string& spool) override;
  std::uint64_t finish(bool stop) override;

  unsigned jobs = 0;  ///< of a worker; 0: one a core

 private:
  struct Request;
  [[nodiscard]] std::uint64_t ask(const Request& request);

  std::mutex mutex_;
  int socket_ = -1;
  pid_t process_ = -1;
};

}  // namespace ckpt::cli

// SPDX-License-Identifier: Apache-2.0
// Measures what checkpoints cost on this machine and its storage: a loop that computes saves its state in each of the
// three ways there are, and what it lost is set against memcpy and against the device's own speed.
#pragma once

#include <ckpt/export.hpp>
#include <ckpt/monitor.hpp>
#include <ckpt/save.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ckpt {

enum class BenchWay {
  synchronous,  ///< a file is written, and saved: the loop waits until it's durable
  detached,     ///< a file is written, and moved into the spool; a worker process drains it
  in_process,   ///< the memory is frozen; a thread of the process saves it
};
[[nodiscard]] CKPT_API std::string_view to_string(BenchWay way);

/// The processes that drain spools. Implemented by the caller, since a library that runs threads can't fork well.
/// Thread-safe.
class CKPT_API BenchWorkers {
 public:
  virtual ~BenchWorkers();
  /// As `ckpt-save --detach` does once something is staged: a process that ends when the spool is drained.
  virtual void start(const std::string& store, const std::string& spool) = 0;
  /// Comes back once all have ended, with the most memory that one of them had, in bytes. `stop`: they're told to.
  virtual std::uint64_t finish(bool stop) = 0;
};

struct BenchOptions {
  /// A directory for what is measured. Made for it; one that's there must have been made by an earlier run.
  std::string store;
  bool keep = false;  ///< what is in it stays
  /// Another directory of that kind, on the disk of the spool and of the trainer's files; empty: they're in `store`.
  std::string spool;

  std::uint64_t state_bytes = std::uint64_t{256} << 20U;  ///< of all ranks together
  std::uint32_t tensors = 100;                            ///< a rank
  std::uint32_t ranks = 1;  ///< that save their shards at the same time, as threads of this process
  double update = 1;        ///< the share of the state that each step changes
  std::uint64_t seed = 1;   ///< of the state

  std::uint32_t threads = 0;  ///< that compute; 0: all cores but one
  std::uint32_t steps = 50;   ///< a way
  std::uint32_t saves = 3;    ///< a way, evenly spaced
  double step_seconds = 0.1;  ///< about how long a step takes without saves, if the update leaves room
  Encode encode = Encode::fast;
  unsigned jobs = 0;  ///< threads a save; 0: the cores, shared by the ranks

  std::vector<std::string> paths;      ///< directories whose device is measured too
  std::optional<double> mtbf_seconds;  ///< mean time between failures of the whole job
};

/// A time, and how often the state could have been copied in memory, or written to (read from, for verify) the store's
/// device in it.
struct BenchTime {
  double seconds = 0;
  double to_memcpy = 0;
  double to_device = 0;
};

struct BenchMachine {
  unsigned cores = 1;
  double memcpy_rate = 0;  ///< bytes a second, one thread, as all rates
  double hash_rate = 0;    ///< XXH3-128
  bool can_protect = false;
  std::string why_not_protect;  ///< empty if it can
};

struct BenchDevice {
  std::string path;
  std::string kind;        ///< "ext4", "tmpfs", "nfs"; a hexadecimal number if it isn't known
  bool is_memory = false;  ///< lost with the power
  bool is_network = false;
  double write_rate = 0;  ///< bytes a second: past the page cache, to the end of fsync
  double read_rate = 0;   ///< past the page cache
  std::uint64_t free_bytes = 0;
};

/// In seconds since the loop began.
struct BenchStep {
  double begin = 0;
  double end = 0;
};

/// In seconds since the loop began. The loop stands still from `begin` to `resumed`.
struct BenchSave {
  std::uint64_t step = 0;
  double begin = 0;
  double file = 0;  ///< the trainer's own file is written; `begin` in the process
  double resumed = 0;
  double staged = 0;
  double written = 0;
  double durable = 0;
};

/// Times are means over the saves, from a save's beginning, unless it says otherwise.
struct BenchWayReport {
  BenchWay way = BenchWay::synchronous;
  BenchTime file;   ///< writing the trainer's own file: a part of the stall
  BenchTime stall;  ///< the loop stood still
  BenchTime longest_stall;
  BenchTime staged;
  BenchTime written;
  BenchTime durable;
  BenchTime fault;  ///< threads waited for a page to be copied aside; a part of the slow-down, added up over threads
  BenchTime lost;   ///< a save: the stall, and what the steps beside it took longer
  BenchTime loop;   ///< all steps and stalls
  BenchTime total;  ///< from the loop's begin until the last save is durable
  double utilisation = 0;                 ///< the share of the loop's time that isn't lost
  double step_seconds = 0;                ///< mean, without stalls
  double alone_seconds = 0;               ///< the same of steps without a save beside them, in this loop and around it
  double slow_down = 1;                   ///< of the steps beside a save, against those without
  double slow_seconds = 0;                ///< a save: how long steps ran beside it
  std::uint64_t memory_bytes = 0;         ///< the most memory more than before the saves, in this process
  std::uint64_t aside_bytes = 0;          ///< of that, copies of what the loop changed; of all ranks
  std::uint64_t worker_memory_bytes = 0;  ///< the most memory of a worker process
  std::uint64_t raw_bytes = 0;            ///< of all saves
  std::uint64_t stored_bytes = 0;         ///< of all saves
  std::string note;                       ///< why memory was copied, and the like
  std::vector<BenchStep> steps;
  std::vector<BenchSave> saves;
};

/// How often to save, from what a save costs and how often the job fails.
struct BestInterval {
  double young_seconds = 0;
  double daly_seconds = 0;
  double lost_share = 0;  ///< of the time, at Daly's interval
};

/// Computing time between two saves. `cost`: what a save takes from the loop; `recovery`: from a failure until the loop
/// goes on; `mtbf`: mean time between failures, which come at random. All in seconds, cost and recovery not negative,
/// mtbf positive. Pure.
///
/// J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974: sqrt(2 C M).
/// J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22(3), 2006, eq. 37:
/// sqrt(2 C M) [1 + sqrt(C / 2M) / 3 + (C / 2M) / 9] - C for C < 2 M, else M.
[[nodiscard]] CKPT_API BestInterval best_interval(double cost, double recovery, double mtbf);

/// The share of the time that is no progress: saves, work done twice, recoveries. Pure; arguments as best_interval().
/// From Daly's complete model (eq. 20), exact for failures at random: 1 - T exp(-R / M) / (M (exp((T + C) / M) - 1)).
[[nodiscard]] CKPT_API double lost_share(double interval, double cost, double recovery, double mtbf);

struct BenchInterval {
  BenchWay way = BenchWay::synchronous;
  BestInterval best;
  double recovery_seconds = 0;  ///< restore, and for a save in the background how late it's durable
  double interval_seconds = 0;  ///< Daly's, but not shorter than a save takes to be durable
  double lost_share = 0;        ///< at that interval
};

struct BenchAdvice {
  std::string topic;  ///< "bottleneck", "way", "memory", "spool", "store", "interval", "servers", "replicas"
  std::string text;   ///< sentences without a full stop at the end
};

struct BenchReport {
  BenchOptions options;  ///< with what 0 stood for
  BenchMachine machine;
  BenchDevice device;                ///< of the store
  std::vector<BenchDevice> devices;  ///< of BenchOptions::paths
  double step_seconds = 0;           ///< of a loop without saves
  std::vector<BenchWayReport> ways;
  BenchTime restore;                     ///< the newest checkpoint, into the store's directory
  BenchTime verify;                      ///< every stored byte of one checkpoint, the mean over those that were saved
  std::vector<BenchInterval> intervals;  ///< with BenchOptions::mtbf_seconds
  std::vector<BenchAdvice> advice;
  double seconds = 0;
};

/// Runs it: a loop each way, from the same state into a store of its own, with some steps without saves between them.
///
/// Nothing is removed but what it made, also after an Error; a directory that something else was put into stays.
///
/// Errors: invalid_argument; exists (the store's directory is there and no bench made it); busy (another bench runs in
/// it); not_found (a path); no_space; io; interrupted.
[[nodiscard]] CKPT_API BenchReport bench(const BenchOptions& options, BenchWorkers& workers, Monitor& monitor);

/// What follows from the numbers. Pure: bench() has put it into its report.
[[nodiscard]] CKPT_API std::vector<BenchAdvice> advise(const BenchReport& report);

/// An SVG picture: how long each step took over time, one way below the other, with the saves marked. Pure.
[[nodiscard]] CKPT_API std::string draw_bench(const BenchReport& report);

}  // namespace ckpt

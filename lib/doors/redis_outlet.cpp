// SPDX-License-Identifier: Apache-2.0
#include "doors/redis_outlet.hpp"

#include "core/pipeline.hpp"
#include "doors/announcement.hpp"
#include "doors/consumed_input.hpp"
#include "doors/outcome.hpp"
#include "doors/patience.hpp"
#include "doors/piece_reader.hpp"

#include <sys/random.h>
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <utility>

namespace ckpt::doors {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr double default_timeout_seconds = 60;
/// Pieces that Redis hasn't acknowledged yet.
constexpr std::size_t max_in_flight = 2;
constexpr unsigned readers = 2;
constexpr std::size_t read_ahead = 3;

std::string random_shard_id() {
  Digest id;
  if (::getrandom(id.bytes.data(), id.bytes.size(), 0) != static_cast<ssize_t>(id.bytes.size()))
    os::throw_errno(errno, "no random number to be had");
  return to_hex(id);
}

Milliseconds patience_of(const StageOptions& options) {
  const double seconds = options.timeout_seconds > 0 ? options.timeout_seconds : default_timeout_seconds;
  return Milliseconds(std::llround(std::min(seconds, 1e9) * 1000));
}

/// No single wait is longer than all of them may be.
RedisLimits limits_of(const StageOptions& options) {
  RedisLimits limits;
  const Milliseconds patience = std::max(patience_of(options), Milliseconds(100));
  limits.connect = std::min(limits.connect, patience);
  limits.answer = std::min(limits.answer, patience);
  return limits;
}

struct Piece {
  Pool<os::AlignedBuffer>::Lease buffer;
  std::span<const std::byte> bytes;
  Digest digest;
};

/// One state on its way into the queue.
class Upload {
 public:
  Upload(const RedisAddress& address, std::string password, const Parcel& parcel, const RedisOutletSettings& settings,
         Monitor& monitor)
      : address_(address),
        password_(std::move(password)),
        connection_(address_, password_, limits_of(parcel.options), [&monitor] { return monitor.stop_requested(); }),
        queue_(connection_, address_.key),
        parcel_(parcel),
        settings_(settings),
        monitor_(monitor),
        shard_(random_shard_id()),
        reader_(parcel.entries, settings.piece_size),
        digests_(shard_, reader_.count()),
        patience_(patience_of(parcel.options), [&monitor] { return monitor.stop_requested(); }) {}

  /// Comes back once the state is accepted.
  void run() {
    // Before any byte is sent: what can't be announced would be sent for nothing.
    (void)encode_announcement(announcement());
    while (true) {
      try {
        if (try_once()) return;
      } catch (const RedisTrouble& trouble) {
        connection_.close();
        had_trouble_ = true;
        const bool give_up = trouble.is_full() && parcel_.options.when_full == WhenFull::fail;
        if (give_up || patience_.is_over()) throw;
        monitor_.note(trouble.what());
      } catch (...) {
        connection_.close();
        throw;
      }
      patience_.sleep();
    }
  }

  /// After run() failed: what was sent goes. True if it was accepted after all.
  [[nodiscard]] bool withdraw() {
    try {
      RedisConnection last(address_, password_, {.connect = last_wait, .answer = last_wait});
      return !RedisQueue(last, address_.key).withdraw(shard_, reader_.count());
    } catch (const Error& error) {
      monitor_.note(std::string("what was sent goes by itself: ") + error.what());
      return false;
    }
  }

  /// What became of the state, or nothing if that wasn't heard of in time.
  [[nodiscard]] std::optional<Outcome> wait_for_outcome() {
    patience_.renew();
    while (true) {
      try {
        if (const auto text = queue_.take_outcome(shard_)) return decode_outcome(*text, "outcome of " + shard_);
      } catch (const RedisTrouble& trouble) {
        monitor_.note(trouble.what());
      }
      if (patience_.is_over()) return std::nullopt;
      patience_.sleep();
    }
  }

  /// Only a time to live is saved by it. An announcement may still be under way on a connection that was given up.
  void forget() {
    if (had_trouble_) return;
    try {
      queue_.forget_announcement(shard_);
    } catch (const RedisTrouble& trouble) {
      monitor_.note(trouble.what());
    }
  }

 private:
  static constexpr Milliseconds last_wait{1000};

  bool try_once() {
    connection_.open();
    warn_once();
    if (!queue_.reserve(shard_, reader_.bytes(), {parcel_.options.limit.bytes, parcel_.options.limit.saves},
                        settings_.lease)) {
      const std::string message = "the queue '" + address_.text() + "' is full";
      if (parcel_.options.when_full == WhenFull::fail || patience_.is_over()) throw Error(Errc::busy, message);
      return false;
    }
    send(queue_.missing(shard_, reader_.count()));
    const Milliseconds remembered = settings_.lease + patience_of(parcel_.options);
    return queue_.announce(shard_, reader_.count(), reader_.bytes(), remembered, encode_announcement(announcement()));
  }

  void warn_once() {
    if (std::exchange(warned_, true)) return;
    for (const std::string& warning : persistence_warnings(connection_)) monitor_.warning(warning);
  }

  void send(const std::vector<std::uint64_t>& numbers) {
    last_renewal_ = Clock::now();
    std::size_t in_flight = 0;
    const auto acknowledge = [&] {
      (void)connection_.receive();
      --in_flight;
      patience_.renew();
    };
    run_ordered(
        numbers.size(), readers, read_ahead,
        [&](std::size_t i) {
          Piece piece{.buffer = buffers_.take(), .bytes = {}, .digest = {}};
          piece.bytes = reader_.read(numbers[i], *piece.buffer);
          piece.digest = digests_.note(numbers[i], piece.bytes);
          return piece;
        },
        [&](std::size_t i, const Piece& piece) {
          queue_.send_piece(shard_, numbers[i], piece.digest, piece.bytes, settings_.lease);
          ++in_flight;
          while (in_flight >= max_in_flight) acknowledge();
          if (Clock::now() - last_renewal_ > settings_.lease / 3) {
            while (in_flight > 0) acknowledge();
            queue_.renew(shard_, reader_.count(), settings_.lease);
            last_renewal_ = Clock::now();
          }
          monitor_.progress({.stage = "stage", .done = bytes_up_to(numbers[i] + 1), .total = reader_.bytes()});
        });
    while (in_flight > 0) acknowledge();
  }

  [[nodiscard]] std::uint64_t bytes_up_to(std::uint64_t piece) const {
    return std::min(piece * settings_.piece_size, reader_.bytes());
  }

  [[nodiscard]] Announcement announcement() const {
    Announcement announcement{.ticket = parcel_.ticket,
                              .entries = {},
                              .piece_size = settings_.piece_size,
                              .pieces = reader_.count(),
                              .bytes = reader_.bytes(),
                              .digest = digests_.total(),
                              .stall_seconds = std::chrono::duration<double>(Clock::now() - begin_).count(),
                              .wants_outcome = parcel_.options.until_durable};
    announcement.entries.reserve(parcel_.entries.size());
    for (const source::TreeEntry& entry : parcel_.entries) announcement.entries.push_back(entry.file);
    return announcement;
  }

  const RedisAddress& address_;
  std::string password_;
  RedisConnection connection_;
  RedisQueue queue_;
  const Parcel& parcel_;
  const RedisOutletSettings& settings_;
  Monitor& monitor_;
  std::string shard_;
  PieceReader reader_;
  PieceDigests digests_;
  Patience patience_;
  Pool<os::AlignedBuffer> buffers_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point last_renewal_;
  bool warned_ = false;
  bool had_trouble_ = false;
};

}  // namespace

RedisOutlet::RedisOutlet(RedisAddress address, std::string password, RedisOutletSettings settings)
    : address_(std::move(address)), password_(std::move(password)), settings_(settings) {}

Receipt RedisOutlet::hand_over(const Parcel& parcel, Monitor& monitor) {
  if (parcel.options.when_full == WhenFull::skip) {
    throw Error(Errc::invalid_argument, "a queue can't skip: its producers don't know of each other's decisions")
        .with_hint("use wait or fail");
  }
  Upload upload(address_, redis_password(address_, password_), parcel, settings_, monitor);
  try {
    upload.run();
  } catch (...) {
    if (!upload.withdraw()) throw;
  }
  upload.forget();
  if (parcel.options.consume) remove_inputs(parcel.entries, monitor);
  Receipt receipt{.state = SaveState::staged, .how = "queue", .reason = {}, .id = {}};
  if (!parcel.options.until_durable) return receipt;
  if (const auto outcome = upload.wait_for_outcome()) {
    receipt.state = outcome->state;
    receipt.reason = outcome->reason;
    receipt.id = outcome->id;
  } else {
    receipt.reason = "'" + address_.text() + "' has accepted it, but no server has said in time what became of it";
  }
  return receipt;
}

}  // namespace ckpt::doors

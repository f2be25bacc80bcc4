// SPDX-License-Identifier: Apache-2.0
// From numbers to what one can do. A speed counts as reached from three quarters on: the rest is start and end.
#include <ckpt/bench.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace ckpt {
namespace {

constexpr double reached = 0.75;

std::string rate_text(double bytes_per_second) {
  constexpr double mib = 1 << 20;
  if (bytes_per_second >= 1024 * mib) return fmt::format("{:.2f} GiB/s", bytes_per_second / (1024 * mib));
  return fmt::format("{:.3g} MiB/s", bytes_per_second / mib);
}

std::string time_text(double seconds) {
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  return seconds < 7200 ? fmt::format("{:.3g} min", seconds / 60) : fmt::format("{:.3g} h", seconds / 3600);
}

std::string name_of(BenchWay way) { return way == BenchWay::in_process ? "in-process" : std::string(to_string(way)); }

class Adviser {
 public:
  explicit Adviser(const BenchReport& report) : report_(report) {}

  std::vector<BenchAdvice> all() {
    if (report_.ways.empty()) return {};
    bottleneck();
    best_way();
    memory();
    places();
    interval();
    servers();
    return std::move(advice_);
  }

 private:
  void say(std::string topic, std::string text) { advice_.push_back({std::move(topic), std::move(text)}); }

  [[nodiscard]] const BenchWayReport* find(BenchWay way) const {
    const auto at = std::find_if(report_.ways.begin(), report_.ways.end(),
                                 [&](const BenchWayReport& each) { return each.way == way; });
    return at == report_.ways.end() ? nullptr : &*at;
  }
  [[nodiscard]] const BenchWayReport& cheapest() const {
    return *std::min_element(report_.ways.begin(), report_.ways.end(),
                             [](const auto& a, const auto& b) { return a.lost.seconds < b.lost.seconds; });
  }
  [[nodiscard]] static double bytes_a_save(const BenchWayReport& way) {
    return static_cast<double>(way.raw_bytes) / std::max<double>(1, static_cast<double>(way.saves.size()));
  }

  /// What a save without a loop beside it waits for.
  void bottleneck() {
    const BenchWayReport* way = find(BenchWay::synchronous);
    if (way == nullptr) return;
    const double seconds = std::max(way->written.seconds - way->file.seconds, 1e-9);
    const double raw = bytes_a_save(*way) / seconds;
    const double stored =
        raw * static_cast<double>(way->stored_bytes) / std::max(1.0, static_cast<double>(way->raw_bytes));
    if (stored >= reached * report_.device.write_rate) {
      say("bottleneck", fmt::format("The device: a save stores {}, and it writes {}. Only storing less helps: "
                                    "--encode=fast or best, a longer interval, a faster device",
                                    rate_text(stored), rate_text(report_.device.write_rate)));
    } else if (way->file.seconds > way->written.seconds / 2) {
      say("bottleneck", fmt::format("Writing the trainer's own file, {} of {}: saves from memory have none",
                                    time_text(way->file.seconds), time_text(way->written.seconds)));
    } else if (report_.options.encode != Encode::raw) {
      say("bottleneck",
          fmt::format("The processor: {} are encoded on {} and the device would take {}. {}", rate_text(raw),
                      report_.machine.cores == 1 ? "one core" : fmt::format("{} cores", report_.machine.cores),
                      rate_text(report_.device.write_rate),
                      report_.options.encode == Encode::best ? "--encode=fast is faster" : "--encode=raw is faster"));
    } else {
      say("bottleneck",
          fmt::format("Reading and checking: {} are saved, the device would take {}, one thread hashes {}",
                      rate_text(raw), rate_text(report_.device.write_rate), rate_text(report_.machine.hash_rate)));
    }
  }

  void best_way() {
    const BenchWayReport& best = cheapest();
    const BenchWayReport* synchronous = find(BenchWay::synchronous);
    std::string text =
        fmt::format("Save {}: a save costs the loop {}", name_of(best.way), time_text(best.lost.seconds));
    if (synchronous != nullptr && best.way != BenchWay::synchronous)
      text += fmt::format(", a synchronous one {}", time_text(synchronous->lost.seconds));
    if (best.slow_down > 1.05) {
      text += fmt::format(". The loop shares cores, memory and disk with it: steps are {:.2g} times as long for {}",
                          best.slow_down, time_text(best.slow_seconds));
    }
    say("way", text);
  }

  void memory() {
    const BenchWayReport* way = find(BenchWay::in_process);
    if (way == nullptr) return;
    if (!report_.machine.can_protect) {
      say("memory", fmt::format("Memory can't be write-protected here ({}), so saves from memory copy the state first",
                                report_.machine.why_not_protect));
    } else if (static_cast<double>(way->aside_bytes) > bytes_a_save(*way) / 2) {
      say("memory",
          fmt::format("Saves from memory set up to {:.0f} % of the state's size aside: the loop changes it faster than "
                      "it's written",
                      100 * static_cast<double>(way->aside_bytes) / bytes_a_save(*way)));
    }
  }

  [[nodiscard]] std::vector<const BenchDevice*> devices_with_room() const {
    std::vector<const BenchDevice*> found;
    if (!report_.device.path.empty()) found.push_back(&report_.device);
    for (const BenchDevice& device : report_.devices) {
      if (static_cast<double>(device.free_bytes) > 2 * bytes_a_save(report_.ways.front())) found.push_back(&device);
    }
    return found;
  }

  void places() {
    if (report_.devices.empty()) return;
    const auto slower = [](const BenchDevice* a, const BenchDevice* b) { return a->write_rate < b->write_rate; };
    auto devices = devices_with_room();
    const auto spool = std::max_element(devices.begin(), devices.end(), slower);
    if (spool == devices.end()) return;
    const BenchDevice spool_device = **spool;
    std::erase_if(devices, [](const BenchDevice* device) { return device->is_memory; });
    const auto store = std::max_element(devices.begin(), devices.end(), slower);
    if (store == devices.end()) {
      say("store", "All of these are memory, which a power cut empties: none is a place for a store");
    } else {
      const auto network =
          std::find_if(devices.begin(), devices.end(), [](const BenchDevice* device) { return device->is_network; });
      std::string text = fmt::format("'{}' ({}) writes fastest of what outlives a power cut, {}", (*store)->path,
                                     (*store)->kind, rate_text((*store)->write_rate));
      if (!(*store)->is_network) {
        text += network == devices.end()
                    ? "; it dies with the host: bring a replica elsewhere"
                    : fmt::format("; it dies with the host: keep a replica on '{}'", (*network)->path);
      }
      say("store", text);
    }
    std::string text = fmt::format("'{}' ({}) writes fastest, {}", spool_device.path, spool_device.kind,
                                   rate_text(spool_device.write_rate));
    text += spool_device.is_memory
                ? ". It takes memory for each save that isn't stored yet and a power cut empties it: limit it with "
                  "--max-staged"
                : "";
    say("spool", text +
                     ". A state that is on the spool's file system already is handed over by a rename, which is "
                     "faster than any copy");
  }

  void interval() {
    for (const BenchInterval& each : report_.intervals) {
      if (each.way != cheapest().way) continue;
      std::string text = fmt::format("Compute {} between two saves ({}): {:.2g} % of the time is lost then",
                                     time_text(each.interval_seconds), name_of(each.way), 100 * each.lost_share);
      if (each.interval_seconds > each.best.daly_seconds)
        text += fmt::format(". {} would be best, but a save isn't durable sooner", time_text(each.best.daly_seconds));
      say("interval", text);
    }
  }

  /// How much comes in, against what one server stores: the detached way's worker is one.
  void servers() {
    const BenchWayReport* way = find(BenchWay::detached);
    if (way == nullptr) return;
    const auto interval = std::find_if(report_.intervals.begin(), report_.intervals.end(),
                                       [](const BenchInterval& each) { return each.way == BenchWay::detached; });
    if (interval == report_.intervals.end()) return;
    const double raw = bytes_a_save(*way);
    const double served = raw / std::max(way->durable.seconds - way->stall.seconds, 1e-9);
    // As often as it's best, not as often as it's possible with one.
    const double every = std::max(interval->best.daly_seconds, 1e-3);
    const double needed = raw / every;
    const double servers = std::max(1.0, std::ceil(needed / served));
    say("servers",
        fmt::format("{} every {} is {}, and one worker beside the loop stores {}: that takes {:.0f}, and one more so "
                    "that one may be away",
                    fmt::format("{:.3g} GiB", raw / (1 << 30)), time_text(every), rate_text(needed), rate_text(served),
                    servers));
    const double stored =
        static_cast<double>(way->stored_bytes) / std::max<double>(1, static_cast<double>(way->saves.size()));
    const double copied = std::max(stored / every, 1.0);
    const double carried = std::floor(std::min(report_.device.read_rate / copied, 99.0));
    say("replicas",
        fmt::format("Each replica is sent {}, and the store's device reads {}, which is enough for {}{:.0f}. One "
                    "on another host is what a lost device asks for",
                    rate_text(copied), rate_text(report_.device.read_rate), carried >= 99 ? "more than " : "",
                    carried));
  }

  const BenchReport& report_;
  std::vector<BenchAdvice> advice_;
};

}  // namespace

std::vector<BenchAdvice> advise(const BenchReport& report) { return Adviser(report).all(); }

}  // namespace ckpt

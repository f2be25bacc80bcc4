// SPDX-License-Identifier: Apache-2.0
#include "run/slots.hpp"

#include <algorithm>

namespace ckpt::run {

Slots::Slots(SlotRules rules) : rules_(rules), slots_(rules.most) {}

bool Slots::count_failure(std::uint32_t slot) {
  if (++slots_[slot].failures < rules_.retries) return false;
  const auto used = static_cast<std::uint32_t>(slots_.size() - left_out().size());
  if (slots_[slot].left_out || in_groups(used - 1) < rules_.least) return false;
  leave_out(slot);
  return true;
}

void Slots::forgive() {
  for (Slot& slot : slots_) slot.failures = 0;
}

void Slots::leave_out(std::uint32_t slot) { slots_[slot].left_out = true; }

void Slots::take_back(std::uint32_t slot) { slots_[slot] = {}; }

std::vector<std::uint32_t> Slots::left_out() const {
  std::vector<std::uint32_t> found;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].left_out) found.push_back(slot);
  }
  return found;
}

std::vector<std::uint32_t> Slots::usable() const {
  std::vector<std::uint32_t> found;
  for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot].left_out) found.push_back(slot);
  }
  found.resize(in_groups(static_cast<std::uint32_t>(found.size())));
  return found;
}

std::optional<std::string> visible_devices(const std::optional<std::string>& listed, std::uint32_t slots,
                                           const std::vector<std::uint32_t>& usable) {
  std::vector<std::string> devices;
  if (listed) {
    for (std::size_t begin = 0; begin <= listed->size();) {
      const std::size_t end = std::min(listed->find(',', begin), listed->size());
      devices.push_back(listed->substr(begin, end - begin));
      begin = end + 1;
    }
  } else {
    for (std::uint32_t slot = 0; slot < slots; ++slot) devices.push_back(std::to_string(slot));
  }
  if (slots == 0 || devices.empty() || devices.size() % slots != 0) return std::nullopt;
  const std::size_t share = devices.size() / slots;
  std::string text;
  for (const std::uint32_t slot : usable) {
    for (std::size_t i = 0; i < share; ++i) text += (text.empty() ? "" : ",") + devices[slot * share + i];
  }
  return text;
}

}  // namespace ckpt::run

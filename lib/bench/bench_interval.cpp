// SPDX-License-Identifier: Apache-2.0
// The interval between saves that loses the least time: shorter ones save too often, longer ones lose more to a
// failure.
#include <ckpt/bench.hpp>

#include <cmath>

namespace ckpt {

double lost_share(double interval, double cost, double recovery, double mtbf) {
  // The limit of ever shorter intervals, where saves are free.
  if (interval <= 0) return cost > 0 ? 1 : -std::expm1(-recovery / mtbf);
  const double progress = interval * std::exp(-recovery / mtbf) / (mtbf * std::expm1((interval + cost) / mtbf));
  return 1 - progress;
}

BestInterval best_interval(double cost, double recovery, double mtbf) {
  BestInterval best;
  best.young_seconds = std::sqrt(2 * cost * mtbf);
  const double ratio = cost / (2 * mtbf);
  best.daly_seconds = ratio < 1 ? best.young_seconds * (1 + std::sqrt(ratio) / 3 + ratio / 9) - cost : mtbf;
  best.lost_share = lost_share(best.daly_seconds, cost, recovery, mtbf);
  return best;
}

}  // namespace ckpt

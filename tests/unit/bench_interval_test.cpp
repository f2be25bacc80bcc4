// SPDX-License-Identifier: Apache-2.0
// How often to save: against numbers worked out by hand, and against a search for the least time lost.
#include <ckpt/bench.hpp>

#include <doctest/doctest.h>
#include <cmath>

using ckpt::best_interval;
using ckpt::lost_share;

TEST_SUITE("bench interval") {
  TEST_CASE("a save of 5 minutes and a failure a day: 120 minutes by Young, less by Daly") {
    const auto best = best_interval(300, 0, 86400);
    CHECK(best.young_seconds == doctest::Approx(7200));
    // 120 (1 + 1/24 / 3 + 1/576 / 9) - 5 minutes
    CHECK(best.daly_seconds == doctest::Approx(60 * (120 * (1 + 1.0 / 72 + 1.0 / 5184) - 5)));
  }

  TEST_CASE("a save that takes as long as there is between two failures: Daly says that time") {
    CHECK(best_interval(200, 0, 100).daly_seconds == 100);
    CHECK(best_interval(500, 0, 100).daly_seconds == 100);
    CHECK(best_interval(199.9, 0, 100).daly_seconds == doctest::Approx(100).epsilon(0.2));
  }

  TEST_CASE("Daly's interval loses no more than one longer or shorter does, but for a little") {
    for (const double cost : {0.01, 1.0, 60.0, 600.0, 3000.0}) {
      const double mtbf = 7200;
      const auto best = best_interval(cost, 30, mtbf);
      for (const double factor : {0.5, 0.8, 1.25, 2.0}) {
        CAPTURE(cost);
        CAPTURE(factor);
        CHECK(best.lost_share < lost_share(best.daly_seconds * factor, cost, 30, mtbf) + 1e-3);
      }
    }
  }

  TEST_CASE("to the first order the loss is C/T + (T/2 + R)/M") {
    const double share = lost_share(1000, 1, 20, 1e6);
    CHECK(share == doctest::Approx(1.0 / 1000 + 520 / 1e6).epsilon(0.01));
  }

  TEST_CASE("the loss lies between nothing and everything, whatever the numbers are") {
    for (const double cost : {0.0, 1e-6, 1.0, 1e6}) {
      for (const double mtbf : {1e-3, 1.0, 1e9}) {
        const auto best = best_interval(cost, 1, mtbf);
        CHECK(std::isfinite(best.young_seconds));
        CHECK(std::isfinite(best.daly_seconds));
        CHECK(best.lost_share >= 0);
        CHECK(best.lost_share <= 1);
      }
    }
    CHECK(lost_share(1e9, 1, 0, 1) == doctest::Approx(1));
  }

  TEST_CASE("saves that cost nothing are made all the time, and only the recovery is lost") {
    const auto best = best_interval(0, 10, 1000);
    CHECK(best.daly_seconds == 0);
    CHECK(best.lost_share == doctest::Approx(0.01).epsilon(0.01));
  }
}

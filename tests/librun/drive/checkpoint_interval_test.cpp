#include "librun/drive/checkpoint_interval.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/doctest.h"

namespace checkpoint_interval_test {

using namespace pp;
using namespace pp::run;

namespace {

struct Setting {
  double cost, between_failures, restart;  ///< seconds
};

const std::vector<Setting> kSettings{{0.01, 60, 1},   {0.5, 60, 5},     {2, 600, 30},   {10, 3600, 60},
                                     {1, 3600, 10},   {60, 3600, 120},  {5, 86400, 60}, {120, 86400, 300},
                                     {300, 7200, 60}, {30, 604800, 600}};

// Seconds for `work` seconds of training with a checkpoint after every `interval`: failures of an exponential
// law, also while a checkpoint is written or the training starts again; what was done since the last whole
// checkpoint is done again.
double simulated(const Setting& setting, double interval, double work, std::mt19937_64& random) {
  double time = 0, done = 0;
  const auto next_failure = [&] {
    return -setting.between_failures * std::log1p(-static_cast<double>(random() >> 11) * 0x1p-53);
  };
  double failure = next_failure();
  while (done < work) {
    const double segment = std::min(interval, work - done) + setting.cost;
    if (time + segment <= failure) {
      time += segment;
      done += std::min(interval, work - done);
      continue;
    }
    time = failure;
    failure = time + next_failure();
    while (failure < time + setting.restart) {  // fails while it starts
      time = failure;
      failure = time + next_failure();
    }
    time += setting.restart;
  }
  return time;
}

}  // namespace

TEST_SUITE("librun/drive/checkpoint_interval") {
  TEST_CASE("Daly's figures by hand, and their limits") {
    // cost 2 s, 100 s between failures: sqrt(400) (1 + sqrt(0.01)/3 + 0.01/9) - 2 = 20 * 1.034444 - 2.
    CHECK(best_interval(Seconds(2), Seconds(100)).count() == doctest::Approx(18.688889));
    // A cost of at least twice the time between failures: nothing better than that time.
    CHECK(best_interval(Seconds(300), Seconds(100)) == Seconds(100));
    // Where a cost is small, Young's sqrt(2 * 1e-6 * 1e6).
    CHECK(best_interval(Seconds(1e-6), Seconds(1e6)).count() == doctest::Approx(std::sqrt(2.0)).epsilon(1e-5));
  }

  // The chosen interval's overhead beside that of the best of 80 intervals, which lie 10 % apart around it.
  TEST_CASE("in simulated trainings no other interval takes 5 % less time") {
    for (const Setting& setting : kSettings) {
      CAPTURE(setting.cost);
      CAPTURE(setting.between_failures);
      const double chosen = best_interval(Seconds(setting.cost), Seconds(setting.between_failures)).count();
      const double work = 3000 * std::max(chosen, setting.between_failures / 10);
      const auto time_of = [&](double interval) {
        std::mt19937_64 random(49);
        return simulated(setting, interval, work, random);
      };
      const double mine = time_of(chosen);
      double best = std::numeric_limits<double>::infinity();
      for (int i = -40; i <= 40; ++i) best = std::min(best, time_of(chosen * std::pow(1.1, i)));
      CHECK(mine <= 1.05 * best);
      CHECK(time_of(chosen * 30) > 1.05 * best);  // it matters
    }
  }

  TEST_CASE("a checkpoint's cost is what its steps took longer than others") {
    CheckpointCost cost;
    for (int i = 0; i < 8; ++i) {
      CHECK(!cost.ready());
      cost.add(Seconds(0.1), /*meanwhile=*/false);
    }
    CHECK(cost.ready());
    CHECK(!cost.value());
    cost.add(Seconds(0.4), true);
    cost.add(Seconds(0.2), true);
    CHECK(!cost.value());  // is still written
    cost.add(Seconds(0.1), false);
    CHECK(cost.value()->count() == doctest::Approx(0.4));  // 0.4 + 0.2 - 2 * 0.1
    cost.add(Seconds(0.05), true);                         // by chance shorter than others
    cost.add(Seconds(0.1), false);
    cost.add(Seconds(1.1), true);
    cost.add(Seconds(0.1), false);
    CHECK(cost.value()->count() == doctest::Approx(0.4));  // the middle one of 1 ms, 0.4 s and 1 s
  }
}

}  // namespace checkpoint_interval_test

#include "librun/report/slow_devices.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "libplan/search/planner.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

namespace pp::run {
namespace {

/// Two stages of three layers each, which take 10 ms of a device a micro-batch, on the devices cpu:0 and cpu:1.
plan::Plan plan_of(const std::vector<int>& replicas = {1, 1}) {
  const Profile profile =
      plan::test::make_profile({std::vector<plan::test::LayerRow>(6, {1, 2, 1000, 0, 0, 0, 0}), {}, {1, 2}});
  plan::PlanRequest request;
  request.mini_batch = 4;
  request.micro_batches = 4;
  request.schedule = "1f1b";
  request.stages = 2;
  request.replicas = replicas;
  int devices = 0;
  for (const int one : replicas) devices += one;
  return std::get<plan::Plan>(plan::find_plan(profile, plan::test::make_cluster(devices), request));
}

/// Steps one after the other, in which each worker's work takes so many times as long as promised.
struct Training {
  explicit Training(plan::Plan plan_of_it) : plan(std::move(plan_of_it)), watch(plan) {}

  /// Steps of a second each.
  SlowDevices::Changes step(const std::vector<double>& factors, Seconds time = Seconds(1)) {
    std::vector<StepFigures> workers(plan.workers.size());
    for (std::size_t w = 0; w < workers.size(); ++w)
      workers[w].busy = factors[w] * plan.predicted.workers[w].busy;
    return watch.add(++steps, time, 1, workers);
  }
  /// So many steps; what has changed meanwhile.
  std::vector<SlowDevice> go(int count, const std::function<std::vector<double>()>& factors) {
    std::vector<SlowDevice> slow;
    for (int i = 0; i < count; ++i) {
      const SlowDevices::Changes changes = step(factors());
      slow.insert(slow.end(), changes.slow.begin(), changes.slow.end());
    }
    return slow;
  }
  std::vector<SlowDevice> go(int count, const std::vector<double>& factors) {
    return go(count, [&] { return factors; });
  }

  plan::Plan plan;
  SlowDevices watch;
  std::int64_t steps = 0;
};

}  // namespace

TEST_SUITE("librun/report/slow_devices") {
  TEST_CASE("a device that takes twice as long is named within 20 steps, with the figure and when it began") {
    Training training(plan_of());
    CHECK(training.go(40, {1, 1}).empty());
    CHECK(training.go(16, {1, 2}).empty());
    const std::vector<SlowDevice> named = training.go(4, {1, 2});
    REQUIRE(named.size() == 1);
    CHECK(named[0].worker == WorkerId{1});
    CHECK(named[0].first_step == 41);
    CHECK_FALSE(named[0].last_step.has_value());
    CHECK(named[0].factor == doctest::Approx(2));
    CHECK(slow_device_line(named[0], training.plan) ==
          "device cpu:1 (worker 1) takes 2 times as long as promised since step 41");
    CHECK(training.go(100, {1, 2}).empty());  // once
    CHECK(training.watch.factors()[1] == doctest::Approx(2));

    const std::vector<SlowDevice> over = training.go(20, {1, 1});
    REQUIRE(over.size() == 1);
    CHECK(over[0].last_step == 160);
    CHECK(slow_device_line(over[0], training.plan) ==
          "device cpu:1 (worker 1) took 2 times as long as promised from step 41 to 160");
    CHECK(training.watch.found() == over);
  }

  TEST_CASE("a device that is slow now and then is named with what it takes then") {
    // Every fourth step of twenty is slow: too few to be called so anew, too many to be called as promised.
    Training training(plan_of());
    training.go(40, {1, 2});
    int step = 0;
    CHECK(training.go(100, [&] { return std::vector<double>{1, step++ % 4 == 0 ? 2.0 : 1.0}; }).empty());
    REQUIRE(training.watch.found().size() == 1);
    CHECK(training.watch.found()[0].factor == doctest::Approx(2));
  }

  TEST_CASE("a device that is slow from the beginning is, too: the profile is believed") {
    Training training(plan_of());
    const std::vector<SlowDevice> named = training.go(23, {1.7, 1});
    REQUIRE(named.size() == 1);
    CHECK(named[0].worker == WorkerId{0});
    CHECK(named[0].first_step == 4);  // three steps warm up
  }

  TEST_CASE("what all devices have in common names none, nor does less than promises are off by") {
    Training training(plan_of());
    CHECK(training.go(100, {3, 3}).empty());
    CHECK(training.go(100, {1, 1.35}).empty());
    CHECK(training.go(100, {0.6, 1}).empty());  // slower than the other, as promised
    CHECK(training.watch.found().empty());
  }

  TEST_CASE("replicas of a stage are compared with each other") {
    // Both of the first stage take twice as long as promised: that is the stage's doing.
    Training training(plan_of({2, 2}));
    CHECK(training.go(100, {2, 2, 1, 1}).empty());
    const std::vector<SlowDevice> named = training.go(20, {2, 3, 1, 1});
    REQUIRE(named.size() == 1);
    CHECK(named[0].worker == WorkerId{1});
    CHECK(named[0].factor == doctest::Approx(1.5));
  }

  TEST_CASE("short steps count together, so that one waits for the device and not for the scheduler's turn") {
    // Steps of 5 ms: every fourth one has the turn of another process. Ten together are twice as long.
    Training training(plan_of());
    int step = 0;
    std::vector<SlowDevice> named;
    while (named.empty() && step < 1000) {
      const bool turn = step++ % 4 == 0;
      named = training.step({1, turn ? 5.0 : 1.0}, Seconds(5e-3)).slow;
    }
    CHECK(step <= 3 + 20 * 10);
    REQUIRE(named.size() == 1);
    CHECK(named[0].factor == doctest::Approx(2).epsilon(0.2));
  }

  TEST_CASE("a device that is faster than it was planned for is told, and named by nobody") {
    Training training(plan_of());
    bool told = false;
    for (int i = 0; i < 30; ++i) {
      const SlowDevices::Changes changes = training.step({1, 0.5});
      told = told || changes.any;
      CHECK(changes.slow.empty());
    }
    CHECK(told);
    CHECK(training.watch.factors()[1] == doctest::Approx(0.5));
  }

  TEST_CASE("noise and bursts raise nothing in 1,000 steps, in 1,000 drawn trainings") {
    // Steps vary by a tenth, one in 30 begins a burst of up to 12 steps in which a device takes up to 10 times
    // as long. Bursts of one device do not follow each other at once.
    int alarms = 0;
    for (std::uint64_t seed = 0; seed < 1000; ++seed) {
      std::mt19937_64 random(seed);
      Training training(plan_of());
      std::array<int, 2> left{}, rest{};
      std::array<double, 2> burst{};
      const auto factors = [&] {
        std::vector<double> drawn;
        for (std::size_t d = 0; d < 2; ++d) {
          if (left[d] == 0 && --rest[d] < 0 && std::uniform_int_distribution(0, 29)(random) == 0) {
            left[d] = std::uniform_int_distribution(1, 12)(random);
            burst[d] = std::uniform_real_distribution<double>(1.5, 10)(random);
            rest[d] = 8;
          }
          const double noise = std::uniform_real_distribution<double>(0.9, 1.1)(random);
          drawn.push_back(left[d] > 0 ? burst[d] * noise : noise);
          if (left[d] > 0) --left[d];
        }
        return drawn;
      };
      training.go(1000, factors);
      alarms += static_cast<int>(training.watch.found().size());
    }
    CHECK(alarms == 0);
  }

  TEST_CASE("a stolen half is named within 20 steps in every one of 5,000 drawn trainings") {
    for (std::uint64_t seed = 0; seed < 5000; ++seed) {
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      Training training(plan_of());
      const std::size_t slow = seed % 2;
      const auto factors = [&](double stolen) {
        return [&, stolen] {
          std::vector<double> drawn;
          for (int d = 0; d < 2; ++d)
            drawn.push_back(std::uniform_real_distribution<double>(0.85, 1.15)(random));
          drawn[slow] *= stolen;
          return drawn;
        };
      };
      CHECK(training.go(static_cast<int>(20 + seed % 50), factors(1)).empty());
      const std::int64_t begin = training.steps + 1;
      const std::vector<SlowDevice> named = training.go(20, factors(2));
      REQUIRE(named.size() == 1);
      CHECK(named[0].worker == WorkerId{static_cast<int>(slow)});
      CHECK(named[0].first_step == begin);
      CHECK(named[0].factor == doctest::Approx(2).epsilon(0.15));
    }
  }

  TEST_CASE("nothing is watched without a promise, or where replicas do not wait for each other") {
    plan::Plan plan = plan_of();
    plan.predicted = {};
    Training without(plan);
    std::vector<StepFigures> workers(2);
    for (int i = 0; i < 50; ++i) CHECK_FALSE(without.watch.add(i + 1, Seconds(1), 1, workers).any);
    plan = plan_of({2, 1});
    plan.schedule.weight_policy = plan::WeightPolicy::downpour;
    Training apart(plan);
    CHECK(apart.go(50, {1, 3, 1}).empty());
  }
}

}  // namespace pp::run

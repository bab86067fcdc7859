#include "libplan/search/exact/bottleneck.h"

#include <cmath>
#include <optional>
#include <tuple>

#include "libplan/search/exact/label_search.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/exact/bottleneck");

namespace pp::plan::bottleneck_test {
namespace {

using test::example_a;
using test::Random;
using test::TextbookCost;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

SearchSpace space_of(int layers, int devices) {
  SearchSpace space;
  space.layers = layers;
  space.devices = devices;
  return space;
}

/// The same chain read from its other end: a probe from the back of it is one from the front.
class Mirrored : public StageCost {
 public:
  Mirrored(const StageCost& cost, int layers) : cost_(cost), layers_(layers) {}
  double stage(int begin, int end, DeviceSpan span) const override {
    return cost_.stage(layers_ - end, layers_ - begin, span);
  }
  double cut(int boundary, DeviceSpan span, CutSide side) const override {
    return cost_.cut(layers_ - boundary, span, side == CutSide::in ? CutSide::out : CutSide::in);
  }
  bool fits(int, int, DeviceSpan) const override { return true; }

 private:
  const StageCost& cost_;
  int layers_;
};

/// f[e]: fewest devices that run layers 0..e-1 within `limit`; 0 stands for none within 3.
std::vector<int> fewest_devices(const TextbookCost& cost, double limit) {
  std::vector<int> fewest;
  for (int e = 1; e <= 5; ++e) {
    // Layers 0..e-1 as a chain of their own whose last boundary is still charged.
    class Prefix : public StageCost {
     public:
      Prefix(const StageCost& cost, int end) : cost_(cost), end_(end) {}
      double stage(int begin, int end, DeviceSpan span) const override {
        const double out = end == end_ && end_ != 5 ? cost_.cut(end, span, CutSide::out) : 0;
        return std::max(cost_.stage(begin, end, span), out);
      }
      double cut(int boundary, DeviceSpan span, CutSide side) const override {
        return cost_.cut(boundary, span, side);
      }
      bool fits(int, int, DeviceSpan) const override { return true; }

     private:
      const StageCost& cost_;
      int end_;
    };
    const Prefix prefix(cost, e);
    const Partition found = test_bottleneck(space_of(e, 3), prefix, limit).partition;
    fewest.push_back(device_count(found));
  }
  return fewest;
}

/// The recurrence every search is measured against: h[e][p] over exactly p devices, O(N^2 D^2).
double quadratic_optimum(const StageCost& cost, int layers, int devices) {
  std::vector<std::vector<double>> best(at(layers + 1), std::vector<double>(at(devices + 1), kInfinity));
  best.back()[0] = 0;
  for (int begin = layers - 1; begin >= 0; --begin) {
    for (int end = begin + 1; end <= layers; ++end) {
      for (int used = 0; used < devices; ++used) {
        for (int q = 1; q + used <= devices; ++q) {
          if (!cost.fits(begin, end, {used, q})) continue;
          double value = std::max(best[at(end)][at(used)], cost.stage(begin, end, {used, q}));
          if (begin != 0) value = std::max(value, cost.cut(begin, {used, q}, CutSide::in));
          if (end != layers) value = std::max(value, cost.cut(end, {used, q}, CutSide::out));
          double& known = best[at(begin)][at(used + q)];
          known = std::min(known, value);
        }
      }
    }
  }
  return *std::min_element(best[0].begin(), best[0].end());
}

/// Optimum and the partition of the tie rule, by enumeration.
BottleneckResult brute_force(const SearchSpace& space, const StageCost& cost) {
  BottleneckResult best;
  const auto key = [](const Partition& p) {
    std::vector<std::pair<int, int>> stages;
    for (const StageRange& stage : p) stages.emplace_back(stage.end, stage.replicas);
    return std::tuple(device_count(p), p.size(), stages);
  };
  test::for_each_partition(space, [&](const Partition& partition) {
    if (!test::fits_everywhere(partition, cost)) return;
    const double value = largest_load(partition, space.layers, cost);
    if (value > best.value) return;
    if (value == best.value && key(partition) >= key(best.partition)) return;
    best = {partition, value, 0};
  });
  return best;
}

struct Instance {
  TextbookCost cost;
  SearchSpace space;
};

Instance random_instance(Random& random, bool memory) {
  const int layers = random.integer(1, 8);
  const int devices = random.integer(1, layers > 6 ? 4 : 6);
  const bool whole = random.integer(0, 1) == 0;
  Instance instance{TextbookCost(random.values(layers, 20, whole), random.values(layers, 15, whole),
                                 random.values(layers + 1, 10, whole)),
                    space_of(layers, devices)};
  if (memory) {
    instance.cost.with_memory(random.values(layers, 8, whole), random.integer(5, 60),
                              random.integer(0, 1) == 0);
  }
  return instance;
}

/// The least load by the label search.
Partition by_labels(const SearchSpace& space, const StageCost& cost) {
  const auto probe = [&](double limit) {
    PointTest test = test_labels(space, cost, nullptr, limit, Sums::ignore);
    return BottleneckTest{std::move(test.point.partition), test.point.load, test.next};
  };
  return bisect_bottleneck(probe, 0).partition;
}

}  // namespace

TEST_CASE("Example A: 8.5, layers 0-2 on two devices and 3-4 on one, after the probes of the table") {
  const TextbookCost cost = example_a();
  const Mirrored mirrored(cost, 5);
  const SearchSpace space = space_of(5, 3);

  // Limit, feasible, value or smallest refused load. Two figures are nearer to the optimum than the table's,
  // because the tie rule holds in every probe (at 9: two stages, 8.5, before three, 9) and only ends that can
  // be used are priced (at 8: not stage [3,5) on three devices, whose start takes all three).
  const std::vector<std::tuple<double, bool, double>> probes{
      {kInfinity, true, 20}, {20.0 / 3 * (1 - 1e-12), false, 7},
      {13.5, true, 11},      {9, true, 8.5},
      {8, false, 8.5},       {26.0 / 3, true, 8.5},
      {8.4167, false, 8.5},
  };
  for (const auto& [limit, feasible, figure] : probes) {
    CAPTURE(limit);
    const BottleneckTest probe = test_bottleneck(space, mirrored, limit);
    CHECK(probe.feasible() == feasible);
    CHECK((feasible ? probe.value : probe.next) == doctest::Approx(figure).epsilon(1e-12));
  }
  const BottleneckResult best = search_bottleneck(space, cost, 20.0 / 3 * (1 - 1e-12));
  CHECK(best.value == 8.5);
  CHECK(best.partition == Partition{{0, 3, 2}, {3, 5, 1}});
}

TEST_CASE("Example A: the fewest devices of every prefix are those of the table") {
  const TextbookCost cost = example_a();
  CHECK(fewest_devices(cost, kInfinity) == std::vector{1, 1, 1, 1, 1});
  CHECK(fewest_devices(cost, 6.667) == std::vector{1, 2, 3, 0, 0});
  CHECK(fewest_devices(cost, 13.5) == std::vector{1, 1, 2, 2, 2});
  CHECK(fewest_devices(cost, 9) == std::vector{1, 2, 2, 3, 3});
  CHECK(fewest_devices(cost, 8) == std::vector{1, 2, 3, 3, 0});
  CHECK(fewest_devices(cost, 8.667) == std::vector{1, 2, 2, 3, 3});
}

TEST_CASE("Example B: memory decides the optimum and the tie rule the plan") {
  const std::vector<double> saved{4, 4, 2, 1, 1};
  const auto solve = [&](double limit, bool stash) {
    TextbookCost cost = example_a();
    return search_bottleneck(space_of(5, 3), cost.with_memory(saved, limit, stash));
  };
  CHECK(solve(22, false).value == 8.5);
  CHECK(solve(22, false).partition == Partition{{0, 3, 2}, {3, 5, 1}});
  // With stashing the first stage needs 2*2 + 2*10 = 24 MB.
  CHECK(solve(22, true).value == 9);
  CHECK(solve(20, false).value == 9);
  CHECK(solve(20, false).partition == Partition{{0, 2, 2}, {2, 5, 1}});
  for (const double limit : {18.0, 17.0}) {
    CHECK(solve(limit, false).value == 9);
    CHECK(solve(limit, false).partition == Partition{{0, 1, 1}, {1, 3, 1}, {3, 5, 1}});
  }
  CHECK_FALSE(solve(16, false).feasible());
}

TEST_CASE("the search equals brute force in value and plan, and the quadratic recurrence bit for bit") {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    CAPTURE(round);
    const Instance instance = random_instance(random, round % 2 == 1);
    const BottleneckResult expected = brute_force(instance.space, instance.cost);
    const BottleneckResult found = search_bottleneck(instance.space, instance.cost);
    REQUIRE(found.value == expected.value);
    REQUIRE(found.partition == expected.partition);
    REQUIRE(found.value == quadratic_optimum(instance.cost, instance.space.layers, instance.space.devices));
    REQUIRE(by_labels(instance.space, instance.cost) == expected.partition);
    // Above the optimum it is the bound; from there down any bound will do that is not below.
    REQUIRE(bottleneck_bound(instance.space, instance.cost, kInfinity) == expected.value);
    if (!expected.feasible()) continue;
    REQUIRE(bottleneck_bound(instance.space, instance.cost, 1.1 * expected.value) == expected.value);
    for (const double share : {0.3, 0.9, 1.0}) {
      const double bound = bottleneck_bound(instance.space, instance.cost, share * expected.value);
      REQUIRE(bound >= share * expected.value);
      REQUIRE(bound <= expected.value);
    }
  }
}

TEST_CASE("stage counts, cuts and replicas that are asked for are kept, and the rest stays optimal") {
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    Instance instance = random_instance(random, round % 2 == 1);
    SearchSpace& space = instance.space;
    const int stages = random.integer(1, std::min(space.layers, space.devices));
    switch (round % 4) {
      case 0: space.exact_stages = stages; break;
      case 1: space.max_stages = stages; break;
      case 2:
        space.cut_allowed.assign(at(space.layers + 1), 0);
        for (char& allowed : space.cut_allowed) allowed = static_cast<char>(random.integer(0, 1));
        space.max_replicas = 2;
        break;
      default:
        space.exact_stages = stages;
        for (int s = 0; s < stages; ++s) space.replicas.push_back(random.integer(1, 2));
    }
    const BottleneckResult expected = brute_force(space, instance.cost);
    REQUIRE(search_bottleneck(space, instance.cost).partition == expected.partition);
    REQUIRE(by_labels(space, instance.cost) == expected.partition);
  }
}

TEST_CASE("one more device and one more byte never make the optimum worse") {
  Random random(3);
  for (int round = 0; round < 300; ++round) {
    const int layers = random.integer(1, 40);
    TextbookCost cost(random.values(layers, 20, false), random.values(layers, 15, false),
                      random.values(layers + 1, 10, false));
    const std::vector<double> saved = random.values(layers, 5, false);
    double before = kInfinity;
    for (int devices = 1; devices <= 12; ++devices) {
      cost.with_memory(saved, 150);
      const double value = search_bottleneck(space_of(layers, devices), cost).value;
      REQUIRE(value <= before);
      before = value;
      cost.with_memory(saved, 151);
      REQUIRE(search_bottleneck(space_of(layers, devices), cost).value <= value);
    }
  }
}

TEST_CASE("40,000 devices: a chain of 30,000 and 10,000 ms runs at 1 ms per micro-batch") {
  // Two layers, nothing crosses and nothing is reduced: q0 + q1 = 40,000 and max(30,000/q0, 10,000/q1) is least
  // where both are 1. One stage of both is as good with as many devices, and has fewer stages.
  const TextbookCost cost({30'000, 10'000}, {0, 0}, {0, 0, 0});
  const BottleneckResult one = search_bottleneck(space_of(2, 40'000), cost);
  CHECK(one.value == 1);
  CHECK(one.partition == Partition{{0, 2, 40'000}});
  SearchSpace two = space_of(2, 40'000);
  two.exact_stages = 2;
  const BottleneckResult split = search_bottleneck(two, cost);
  CHECK(split.value == 1);
  CHECK(split.partition == Partition{{0, 1, 30'000}, {1, 2, 10'000}});
}

TEST_CASE("costs that are not monotone in the replicas are searched over every count") {
  // (1 + 10(q-1)/q)/q is 1, 3, 2.56, 2.125 for q = 1..4 and 1.0 at q = 10, 0.917 at q = 11.
  const TextbookCost cost({1}, {5}, {0, 0});
  CHECK(search_bottleneck(space_of(1, 4), cost).value == 1);
  CHECK(search_bottleneck(space_of(1, 4), cost).partition == Partition{{0, 1, 1}});
  CHECK(search_bottleneck(space_of(1, 11), cost).value == doctest::Approx(111.0 / 121).epsilon(1e-12));
  CHECK(search_bottleneck(space_of(1, 11), cost).partition == Partition{{0, 1, 11}});
}

TEST_CASE("layers without time, equal layers and times of 1e-9 beside 10 are no special case") {
  CHECK(search_bottleneck(space_of(4, 3), TextbookCost({0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0, 0})).value ==
        0);
  CHECK(search_bottleneck(space_of(6, 3),
                          TextbookCost({1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0}))
            .value == 2);
  // The 10 s layer alone on two devices: 10/2; everything else is dust.
  const TextbookCost dust({1e-9, 10, 1e-9}, {0, 0, 0}, {0, 0, 0, 0});
  CHECK(search_bottleneck(space_of(3, 3), dust).value == doctest::Approx((10 + 2e-9) / 3).epsilon(1e-15));
}

}  // namespace pp::plan::bottleneck_test

TEST_SUITE_END();

#include "libplan/search/exact/pareto.h"

#include <cmath>
#include <limits>
#include <numeric>

#include "libplan/search/exact/label_search.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/exact/pareto");

namespace pp::plan::pareto_test {
namespace {

using test::Random;

/// Loads of a step on plain tables, ring all-reduce, no overlap, U = 0, bandwidth 1.
class StepCost : public StageCost {
 public:
  StepCost(std::vector<double> compute, std::vector<double> weights, std::vector<double> cuts,
           int micro_batches, std::vector<double> fill, double base)
      : fill_(std::move(fill)),
        base_(base),
        compute_(std::move(compute)),
        weights_(std::move(weights)),
        cuts_(std::move(cuts)),
        count_(micro_batches) {}
  double stage(int begin, int end, DeviceSpan span) const override {
    const int q = span.count;
    const auto over = [&](const std::vector<double>& v) {
      return std::accumulate(v.begin() + begin, v.begin() + end, 0.0);
    };
    return (rounds(q) - 1) * over(compute_) + 2.0 * (q - 1) / q * over(weights_);
  }
  double cut(int boundary, DeviceSpan span, CutSide) const override {
    return (rounds(span.count) - 1) * cuts_[at(boundary)];
  }
  bool fits(int begin, int end, DeviceSpan span) const override {
    return (span.end() + span.count - 1) / span.count * (end - begin) <= limit;
  }
  double base() const override { return base_; }
  double fill(int boundary, DeviceSpan) const override { return fill_[at(boundary)]; }
  int limit = 1000;  ///< layers in flight per device

 private:
  int rounds(int q) const { return (count_ + q - 1) / q; }
  std::vector<double> fill_;
  double base_;
  std::vector<double> compute_, weights_, cuts_;
  int count_;
};

SearchSpace space_of(int layers, int devices, int micro_batches) {
  SearchSpace space;
  space.layers = layers;
  space.devices = devices;
  space.max_replicas = std::min(devices, micro_batches);
  return space;
}

double brute_force(const SearchSpace& space, const StageCost& cost) {
  double best = std::numeric_limits<double>::infinity();
  test::for_each_partition(space, [&](const Partition& partition) {
    if (!test::fits_everywhere(partition, cost)) return;
    double sum = cost.base();
    for (const int cut : cuts_of(partition)) sum += cost.fill(cut, {});
    best = std::min(best, sum + largest_load(partition, space.layers, cost));
  });
  return best;
}

}  // namespace

TEST_CASE("Example C: data parallelism at J = 56 beside the pipeline of theta 33 and G 24") {
  // f+g = 6,3,6,3, W/B = 0,1,2,12, t = t' = 3 at every cut, D = 3, M = 6; loads of cuts (n-1)*3.
  const StepCost cost({6, 3, 6, 3}, {0, 1, 2, 12}, {0, 3, 3, 3, 0}, 6, {0, 6, 6, 6, 0}, 18);
  const SearchSpace space = space_of(4, 3, 6);
  const BottleneckResult least = search_bottleneck(space, cost);
  CHECK(least.value == 33);  // layers 0-2 on two devices: 2*15 + 2*(1/2)*3
  CHECK(least.partition == Partition{{0, 3, 2}, {3, 4, 1}});

  const ParetoFront result = search_points(space, cost);
  CHECK(result.objective == 56);
  REQUIRE(result.points.size() == 2);
  CHECK(result.points[0].partition == Partition{{0, 4, 3}});
  CHECK(result.points[0].load == 38);  // 18 + 2*(2/3)*15
  CHECK(result.points[0].sum == 0);
  CHECK(result.points[1].partition == Partition{{0, 3, 2}, {3, 4, 1}});
  CHECK(result.points[1].load == 33);
  CHECK(result.points[1].sum == 6);  // G = 18 + 6 = 24, J = 57
}

TEST_CASE("without replicas and link cost J is the usual sum plus (M-1) times the largest stage") {
  // F = 3,2,5,2, B = 2F, M = 8, one layer per stage: 36 + 7*15 = 141, GPipe's step.
  const StepCost cost({9, 6, 15, 6}, {0, 0, 0, 0}, {0, 0, 0, 0, 0}, 8, {0, 0, 0, 0, 0}, 36);
  SearchSpace space = space_of(4, 4, 8);
  space.max_replicas = 1;
  CHECK(search_points(space, cost).objective == 141);
}

TEST_CASE("J equals brute force, with and without memory limits and constraints") {
  Random random(11);
  for (int round = 0; round < 2000; ++round) {
    CAPTURE(round);
    const int layers = random.integer(1, 7);
    const int devices = random.integer(1, 5);
    const int micro_batches = random.integer(1, 9);
    const bool whole = round % 2 == 0;
    StepCost cost(random.values(layers, 20, whole), random.values(layers, 15, whole),
                  random.values(layers + 1, 9, whole), micro_batches, random.values(layers + 1, 12, whole), 50);
    if (round % 3 == 0) cost.limit = random.integer(1, 8);
    SearchSpace space = space_of(layers, devices, micro_batches);
    if (round % 5 == 0) space.exact_stages = random.integer(1, std::min(layers, devices));
    if (round % 5 == 1) space.max_stages = random.integer(1, std::min(layers, devices));
    const double expected = brute_force(space, cost);
    const ParetoFront found = search_points(space, cost);
    REQUIRE(found.feasible() == std::isfinite(expected));
    if (!found.feasible()) continue;
    REQUIRE(found.objective == doctest::Approx(expected).epsilon(1e-12));
    // Above the optimum some point is found within the limit, below it none.
    const auto within = [&](double most) {
      const auto probe = [&](double limit) { return test_labels(space, cost, nullptr, limit); };
      return point_within(most, cost.base(), probe);
    };
    for (const double share : {1 + 1e-9, 1.05, 2.0}) {
      const PointTest test = within(share * expected);
      REQUIRE(test.feasible());
      REQUIRE(test.point.load + (cost.base() + test.point.sum) <= share * expected);
    }
    REQUIRE_FALSE(within((1 - 1e-9) * expected).feasible());
    REQUIRE(search_points(space, cost, nullptr, 1.05 * expected).objective == found.objective);
    REQUIRE_FALSE(search_points(space, cost, nullptr, (1 - 1e-9) * expected).feasible());
    for (const double most : {std::numeric_limits<double>::infinity(), 1.05 * expected}) {
      const Point best = search_best_point(space, cost, nullptr, most);
      REQUIRE(best.load + (cost.base() + best.sum) == found.objective);
    }
    REQUIRE_FALSE(search_best_point(space, cost, nullptr, (1 - 1e-9) * expected).feasible());
    for (std::size_t i = 1; i < found.points.size(); ++i) {
      REQUIRE(found.points[i].load < found.points[i - 1].load);
      REQUIRE(found.points[i].sum >= found.points[i - 1].sum);
    }
  }
}

TEST_CASE("a load that falls when the stage grows is found by scanning all starts") {
  // One micro-batch per replica and full overlap: the backward hides the all-reduce, max(0, AR - B).
  class Hidden : public StageCost {
   public:
    double stage(int begin, int end, DeviceSpan span) const override {
      return span.count == 2 ? std::max(0.0, 10.0 - 4 * (end - begin)) : 20.0 * (end - begin);
    }
    double cut(int, DeviceSpan, CutSide) const override { return 0; }
    bool fits(int, int, DeviceSpan) const override { return true; }
    bool may_fall(int replicas) const override { return replicas == 2; }
    double base() const override { return 5; }
    double fill(int, DeviceSpan) const override { return 1; }
  };
  const SearchSpace space = space_of(3, 2, 2);
  CHECK(search_bottleneck(space, Hidden()).value == 0);  // all three layers on both devices: 10 - 12 < 0
  CHECK(search_points(space, Hidden()).objective == 5);
}

}  // namespace pp::plan::pareto_test

TEST_SUITE_END();

// How much work the searches do between two looks at whether to go on.
#include "libplan/cost/graph.h"
#include "libplan/cost/recompute.h"
#include "libplan/search/exact/any_order.h"
#include "libplan/search/exact/bottleneck.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/exact/looks");

namespace pp::plan {
namespace {

/// Counts what is asked of it since the last look.
class CountedCost final : public StageCost {
 public:
  explicit CountedCost(const StageCost& cost) : cost_(cost) {}
  double stage(int begin, int end, DeviceSpan span) const override {
    return ++since_, most_ = std::max(most_, since_), cost_.stage(begin, end, span);
  }
  double cut(int boundary, DeviceSpan span, CutSide side) const override {
    return cost_.cut(boundary, span, side);
  }
  bool fits(int, int, DeviceSpan) const override { return true; }

  StopSign stop() const {
    return {[this] {
      since_ = 0;
      return true;
    }};
  }
  int most() const { return most_; }

 private:
  const StageCost& cost_;
  mutable int since_ = 0, most_ = 0;
};

}  // namespace

TEST_CASE("the least bottleneck looks at the clock for every start") {
  test::Random random(3);
  constexpr int kLayers = 2000;
  const test::TextbookCost textbook(random.values(kLayers, 9, true), std::vector<double>(kLayers, 0),
                                    std::vector<double>(kLayers + 1, 0));
  const CountedCost cost(textbook);
  SearchSpace space;
  space.layers = kLayers;
  space.devices = 4;
  space.stop = cost.stop();
  CHECK(search_bottleneck(space, cost).feasible());
  CHECK(cost.most() > 0);
  CHECK(cost.most() <= 4 * kLayers);  // of about 24 probes with 2000 starts each
}

TEST_CASE("the search over down-sets looks at the clock for every set, and can be stopped") {
  // Two towers of 12 layers: 13 * 13 down-sets.
  test::ProfileSpec spec;
  spec.layers.assign(24, {1, 1, 0, 0, 0, 0, 0});
  for (int l = 0; l < 22; ++l) spec.edges.emplace_back(l, l + 2);
  const auto lattice = make_lattice(make_graph(test::make_profile(spec)), 4096);
  REQUIRE(lattice);
  REQUIRE(lattice->size() == 169);
  const int boundaries = lattice->size() - 1;
  const test::TextbookCost textbook(std::vector<double>(at(boundaries), 1),
                                    std::vector<double>(at(boundaries), 0),
                                    std::vector<double>(at(boundaries + 1), 0));
  const CountedCost cost(textbook);
  SearchSpace space;
  space.layers = boundaries;
  space.devices = 3;
  space.stop = cost.stop();
  CHECK(search_any_order(*lattice, space, cost).feasible());
  CHECK(cost.most() > 0);
  CHECK(cost.most() <= 3 * lattice->size());
  space.stop = {[] { return false; }};
  CHECK_THROWS_AS(search_any_order(*lattice, space, cost), SearchStopped);
}

}  // namespace pp::plan

TEST_SUITE_END();

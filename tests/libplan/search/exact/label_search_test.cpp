#include "libplan/search/exact/label_search.h"

#include <cmath>
#include <numeric>

#include "libplan/cost/chain_cost.h"
#include "libplan/cost/priced_model.h"
#include "libplan/cost/stage_memory.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/exact/label_search");

namespace pp::plan::label_search_test {
namespace {

using test::Random;

Profile random_profile(Random& random, int layers) {
  test::ProfileSpec spec;
  for (int l = 0; l < layers; ++l) {
    const int saved = random.integer(0, 50);
    spec.layers.push_back({1.0 * random.integer(1, 9), 1.0 * random.integer(1, 9), random.integer(0, 30),
                           random.integer(0, 20), saved, random.integer(0, saved), random.integer(0, 20)});
    for (int earlier = 0; earlier < l; ++earlier) {
      if (earlier == l - 1 || random.integer(0, 5) == 0) spec.edges.emplace_back(earlier, l);
    }
  }
  return test::make_profile(spec);
}

struct Optimum {
  double period = std::numeric_limits<double>::infinity();
  double step = std::numeric_limits<double>::infinity();
};

/// Over all partitions that fit by the whole formula.
Optimum brute_force(const SearchSpace& space, const ChainCost& period, const ChainCost& step,
                    const StageMemory& memory) {
  Optimum best;
  test::for_each_partition(space, [&](const Partition& partition) {
    if (!memory.fits(partition)) return;
    int later = 0;
    for (auto stage = partition.rbegin(); stage != partition.rend(); ++stage) {
      REQUIRE(memory.fits_at_least(stage->begin, stage->end, stage->replicas, later));  // a bound, truly
      later += stage->replicas;
    }
    REQUIRE(period.fits(partition));
    double sum = step.base() + largest_load(partition, space.layers, step);
    for (const int cut : cuts_of(partition)) sum += step.fill(cut, {});
    best.step = std::min(best.step, sum);
    best.period = std::min(best.period, largest_load(partition, space.layers, period));
  });
  return best;
}

}  // namespace

TEST_CASE("with the exact windows and boundary tensors of the whole pipeline the search equals brute force") {
  Random random(21);
  int feasible = 0;
  int runs_again = 0;
  int relaxed_too_low = 0;
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    const Profile profile = random_profile(random, random.integer(1, 6));
    const PlanGraph graph = make_graph(profile);
    std::vector<int> order(graph.layers.size());
    std::iota(order.begin(), order.end(), 0);
    const PricedModel model = price_model(profile, std::vector<int>{1}, {});
    Chain chain = make_chain(graph, order, model.layers, model.loss, {1.0, 0, 0.5});
    chain.fixed = {0.25, 0.5};

    SearchSpace space;
    space.layers = graph.size();
    space.devices = random.integer(1, 5);
    const int micro_batches = random.integer(1, 6);
    InFlight in_flight;
    in_flight.all = round % 4 == 0;
    in_flight.rule = round % 4 == 1   ? WindowRule::wide
                     : round % 4 == 2 ? WindowRule::published
                                      : WindowRule::win;
    if (round % 8 == 7) in_flight.policy = WeightPolicy::stash;
    if (round % 8 == 5) {
      in_flight.rule = WindowRule::explicit_list;
      space.exact_stages = random.integer(1, std::min(space.layers, space.devices));
      for (int s = 0; s < space.exact_stages; ++s) in_flight.windows.push_back(random.integer(1, 4));
    }
    in_flight.micro_batches = in_flight.policy == WeightPolicy::stash ? 0 : micro_batches;
    if (round % 5 == 4 && space.exact_stages == 0) {  // stages begin at some boundaries only
      space.cut_allowed.assign(at(space.layers + 1), 0);
      for (char& allowed : space.cut_allowed) allowed = static_cast<char>(random.integer(0, 1));
    }
    const ChainUnits units(graph, model.layers, order);
    if (round % 3 == 2) in_flight.recompute = RecomputeMode::automatic;
    if (round % 9 == 5) in_flight.recompute = RecomputeMode::always;
    in_flight.units = &units;
    const StageMemory memory(chain, in_flight, {random.integer(20, 600), 3});
    const Link link{BytesPerSecond(1e6), Seconds(0)};
    const Seats seats = equal_seats(space.devices, {link, link}, memory.limit());
    const ChainCost period(chain, {LoadKind::period, 1}, seats, in_flight);
    const ChainCost step(chain, {LoadKind::step, micro_batches}, seats, in_flight);

    const Optimum expected = brute_force(space, period, step, memory);
    const BottleneckResult found = search_least_load(space, period, &period);
    const ParetoFront points = search_points(space, step, &step);
    REQUIRE(found.value == expected.period);
    REQUIRE(points.feasible() == found.feasible());
    const Point best = search_best_point(space, step, &step);
    REQUIRE(best.feasible() == found.feasible());
    if (best.feasible()) REQUIRE(best.load + (step.base() + best.sum) == points.objective);
    if (search_bottleneck(space, period).value < found.value) ++relaxed_too_low;
    if (!found.feasible()) continue;
    ++feasible;
    REQUIRE(memory.fits(found.partition));
    REQUIRE(points.objective == doctest::Approx(expected.step).epsilon(1e-12));
    const auto within = [&](double most) { return search_points(space, step, &step, most).objective; };
    REQUIRE(within(points.objective * (1 + 1e-9)) == points.objective);
    REQUIRE(within(points.objective * 1.5) == points.objective);
    REQUIRE(std::isinf(within(points.objective * (1 - 1e-9))));
    REQUIRE(search_bottleneck(space, period).value <= found.value);
    if (in_flight.recompute != RecomputeMode::never) ++runs_again;
  }
  CHECK(feasible > 1000);
  CHECK(runs_again > 500);
  CHECK(relaxed_too_low > 50);  // else the exact search was never needed
}

}  // namespace pp::plan::label_search_test

TEST_SUITE_END();

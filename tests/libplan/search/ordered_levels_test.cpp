// The search on ordered devices with the loads of our cost model, on machines of two and three levels.
#include <algorithm>
#include <numeric>

#include "libplan/cost/chain_cost.h"
#include "libplan/cost/priced_model.h"
#include "libplan/search/exact/label_search.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/ordered_levels");

namespace pp::plan::ordered_levels_test {
namespace {

using test::Random;

/// Devices per group, innermost first, at 8, 4 and 1 GB/s.
Cluster machine(const std::vector<int>& counts) {
  constexpr std::array kBandwidth{8e9, 4e9, 1e9};
  std::vector<LevelSpec> levels;
  for (std::size_t i = 0; i < counts.size(); ++i)
    levels.push_back({counts[i], BytesPerSecond(kBandwidth.at(i))});
  return nested_cluster(levels, DeviceKind::cpu, Seconds(1e-5), Bytes(0));
}

/// In every second one further kinds of devices have times of their own.
Profile random_profile(Random& random, int layers) {
  test::ProfileSpec spec;
  for (int l = 0; l < layers; ++l)
    spec.layers.push_back({1.0 * random.integer(1, 9), 1.0 * random.integer(1, 9),
                           random.integer(0, 9) * 1'000'000, random.integer(0, 9) * 1'000'000,
                           random.integer(0, 9) * 1'000'000, 0, 0});
  Profile profile = test::make_profile(spec);
  for (int kind = 2 * random.integer(0, 1); kind > 0; --kind) {
    for (test::LayerRow& row : spec.layers)
      row.forward_ms = random.integer(1, 9), row.backward_ms = random.integer(1, 9);
    profile.others.push_back(test::make_profile(spec));
  }
  return profile;
}

std::vector<int> shuffled(Random& random, int count) {
  std::vector<int> positions(at(count));
  std::iota(positions.begin(), positions.end(), 0);
  for (int i = count - 1; i > 0; --i) std::swap(positions[at(i)], positions[at(random.integer(0, i))]);
  return positions;
}

/// A chain on a machine of unequal devices, in some order.
struct Instance {
  Instance(Random& random, const std::vector<int>& counts) : cluster(machine(counts)) {
    const int devices = static_cast<int>(cluster.devices.size());
    profile = random_profile(random, random.integer(1, devices > 8 ? 3 : 5));
    graph = make_graph(profile);
    model = price_model(profile, std::vector<int>{1}, {});
    std::vector<int> layers(profile.layers.size());
    std::iota(layers.begin(), layers.end(), 0);
    const auto chain_of = [&](const KindCost& cost) {
      Chain made = make_chain(graph, layers, cost.model.layers, cost.model.loss, cost.optimizer);
      made.fixed = cost.model.fixed;
      return made;
    };
    std::vector<KindCost> kinds;
    for (int k = 0; k <= std::ssize(model.others); ++k) {
      kinds.push_back({model.of_kind(k), {1.0, 0, 0.5 + 0.25 * k}});
      kinds.back().model.fixed = {0.25 * (1 + k), 0.5};
    }
    positions = shuffled(random, devices);
    const bool asks = random.integer(0, 1) == 1;  // time of the devices
    for (Level& level : cluster.levels) {
      level.message_cost = Seconds(asks ? 1e-3 * random.integer(0, 3) : 0);
      level.overlap = asks ? 0.25 * random.integer(0, 4) : 1;
      level.duplex = asks && random.integer(0, 1) == 1 ? Duplex::half : Duplex::full;
    }
    for (Device& device : cluster.devices) {
      device.speed = random.integer(1, 3);
      if (kinds.size() > 1) device.profile = random.integer(0, 2);
      bytes.push_back(random.integer(10, 120) * std::int64_t{1'000'000});
    }
    chain = chain_of(kinds.front());
    if (kinds.size() > 1)
      for (const KindCost& kind : kinds) chain.kinds.push_back(chain_of(kind));
    const auto on = [&](int position) {
      const Device& device = cluster.devices[at(position)];
      return at_speed(kinds[at(device.profile)], device.speed / best_speed());
    };
    KindCost least = on(0);
    for (int d = 1; d < devices; ++d) least = faster_of(std::move(least), on(d));
    bound_chain = chain_of(least);
    for (const int position : positions) slowness.push_back(least_slowness(on(position), least));
    in_flight.micro_batches = random.integer(1, 6);
    space.layers = graph.size();
    space.devices = devices;
    space.max_replicas = std::min(devices, in_flight.micro_batches);
  }
  OrderedDevices list() const { return {cluster, positions, bytes}; }
  double best_speed() const { return std::ranges::max(cluster.devices, {}, &Device::speed).speed; }
  ChainCost cost(LoadKind kind) const {
    return {chain,
            {kind, in_flight.micro_batches},
            listed_seats(list(), best_speed(), 0, Neighbours::all_devices),
            in_flight};
  }
  ChainCost bound(LoadKind kind) const {
    return {bound_chain, {kind, in_flight.micro_batches}, best_seats(list(), slowness, 0), in_flight};
  }

  Cluster cluster;
  Profile profile;
  PlanGraph graph;
  PricedModel model;
  Chain chain, bound_chain;
  std::vector<double> slowness;  ///< of each position
  std::vector<int> positions;
  std::vector<std::int64_t> bytes;
  InFlight in_flight;
  SearchSpace space;
};

struct Optimum {
  double value = std::numeric_limits<double>::infinity();
  double objective = std::numeric_limits<double>::infinity();  ///< value and sum together
};

Optimum brute_force(const SearchSpace& space, const ChainCost& load) {
  Optimum best;
  test::for_each_partition(space, [&](const Partition& partition) {
    if (!load.fits(partition)) return;
    best.value = std::min(best.value, largest_load(partition, space.layers, load));
    best.objective = std::min(best.objective, objective_of(partition, space.layers, load));
  });
  return best;
}

}  // namespace

TEST_CASE(
    "2x2 to 3x2x2 devices, any list and kinds: period, steady step and J equal brute force, bounds are below") {
  Random random(322);
  const std::vector<std::vector<int>> machines{{2, 2}, {3, 2}, {2, 3}, {2, 2, 2}, {3, 2, 2}, {2, 2, 3}};
  int feasible = 0;
  for (int round = 0; round < 2000; ++round) {
    CAPTURE(round);
    const Instance given(random, machines[at(round) % machines.size()]);
    for (const LoadKind kind : {LoadKind::period, LoadKind::steady, LoadKind::step}) {
      const ChainCost load = given.cost(kind);
      const Optimum best = brute_force(given.space, load);
      const BottleneckResult found = search_least_load(given.space, load, &load);
      REQUIRE(found.value == best.value);
      REQUIRE(search_least_load(given.space, load).value <= best.value);
      if (!found.feasible()) continue;
      ++feasible;
      REQUIRE(load.fits(found.partition));
      if (kind == LoadKind::step) {
        REQUIRE(search_points(given.space, load, &load).objective ==
                doctest::Approx(best.objective).epsilon(1e-12));
      } else {
        const ChainCost bound =
            given.bound(kind == LoadKind::steady ? LoadKind::step_bound : LoadKind::period_bound);
        REQUIRE(search_bottleneck(given.space, bound).value <= best.value * (1 + 1e-12));
      }
    }
  }
  CHECK(feasible > 4000);
}

}  // namespace pp::plan::ordered_levels_test

TEST_SUITE_END();

#include "libplan/cost/chain_cost.h"

#include "libplan/cost/priced_model.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/cost/chain_cost");

namespace pp::plan::chain_cost_test {
namespace {

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-12); }

/// Three nodes of two, 8 GB/s inside and 1 GB/s between; the devices of node 1 are twice as fast and hold less.
struct Fixture {
  Profile profile = test::make_profile(
      {{{1, 2, 4'000'000, 6'000'000, 30, 0, 0}, {2, 4, 0, 2'000'000, 20, 0, 0}, {3, 6, 8'000'000, 0, 10, 0, 0}},
       {},
       {1}});
  PlanGraph graph = make_graph(profile);
  PricedModel model = price_model(profile, std::vector<int>{1}, {});
  Chain chain = make_chain(graph, {0, 1, 2}, model.layers, model.loss, {0.0, 0});
  Cluster cluster = two_levels();
  std::vector<int> positions{4, 5, 0, 1, 2, 3};  // of the last layers first
  std::vector<std::int64_t> bytes{40'000'000, 40'000'000, 40'000'000, 40'000'000, 20'000'000, 20'000'000};

  static Cluster two_levels() {
    Cluster made = test::make_cluster(6);
    made.devices[2].speed = made.devices[3].speed = 2;
    Level inner = made.levels.front();
    inner.devices = 2;
    inner.bandwidth = BytesPerSecond(8e9);
    made.levels.insert(made.levels.begin(), inner);
    return made;
  }
  ChainCost load(LoadKind kind, int micro_batches) const {
    return {chain,
            {kind, micro_batches},
            listed_seats({cluster, positions, bytes}, 1, 0, Neighbours::all_devices),
            {.micro_batches = micro_batches}};
  }
};

}  // namespace

TEST_CASE("a stage runs at the speed of its slowest device and reduces over the links it has") {
  const Fixture given;
  const ChainCost load = given.load(LoadKind::step, 6);
  // Layer 0, 3 ms and 4 MB, M = 6. Alone on a fast device: 5 * 1.5.
  CHECK(load.stage(0, 1, {4, 1}) == exactly(0.0075));
  // Both fast ones: n = 3, 2 * 1.5 and a ring of 4 MB at 8 GB/s.
  CHECK(load.stage(0, 1, {4, 2}) == exactly(0.003 + 0.0005));
  // Devices 1 and 2: speed 1, other nodes: 2 * 3 and 4 ms.
  CHECK(load.stage(0, 1, {3, 2}) == exactly(0.006 + 0.004));
  // Nodes 0 and 1, n = 2: 3 ms, then two levels, 0.5 + 4 ms (ring 1.5 * 4, tree 8).
  CHECK(load.stage(0, 1, {2, 4}) == exactly(0.003 + 0.0045));
  // All of a steady step: 6 * 1.5.
  CHECK(given.load(LoadKind::steady, 6).stage(0, 1, {4, 1}) == exactly(0.009));
  // A stream: (1.5 + 0.5)/2 with an update after each micro-batch; after six, three on each: 3 * 1.5 + 0.5.
  CHECK(given.load(LoadKind::period, 1).stage(0, 1, {4, 2}) == exactly(0.001));
  CHECK(given.load(LoadKind::period, 6).stage(0, 1, {4, 2}) == exactly(0.005));
}

TEST_CASE("a cut is charged at the level it crosses, and replicas of a node share its card") {
  const Fixture given;
  const ChainCost load = given.load(LoadKind::step, 6);
  // 6 MB cross boundary 1. Within node 2 (positions 0 and 1): 5 * 0.75 ms.
  CHECK(load.cut(1, {0, 1}, CutSide::in) == exactly(0.00375));
  // From node 0 to node 2, one device: 5 * 6 ms.
  CHECK(load.cut(1, {2, 1}, CutSide::out) == exactly(0.030));
  // Both devices of node 0 send three each over one card: 5 * 6 ms, not 2 * 6.
  CHECK(load.cut(1, {2, 2}, CutSide::out) == exactly(0.030));
  CHECK(given.load(LoadKind::period, 1).cut(1, {2, 2}, CutSide::out) == exactly(0.006));
  // Devices 1 and 2, three messages each: device 0, next to them, is on device 1's node; so is the other way
  // round.
  CHECK(load.cut(1, {3, 2}, CutSide::out) == exactly(0.0015));
  CHECK(load.cut(1, {1, 2}, CutSide::out) == exactly(0.0015));
  CHECK(load.cut(1, {1, 2}, CutSide::in) == exactly(0.0015));
  // Filling: activation and gradient of one micro-batch.
  CHECK(load.fill(1, {2, 1}) == exactly(0.012));
  // Layers 0-1, 9 ms, on the slow devices instead of the fast ones; all of them, 18 ms, on the fast ones.
  CHECK(load.passage(2, {0, 2}) == exactly(0.0045));
  CHECK(load.passage(2, {4, 2}) == 0);
  CHECK(load.base() == exactly(0.009));
}

TEST_CASE("messages keep a stage from its work, a cut counts them with the layer next to it") {
  Fixture given;
  for (Level& level : given.cluster.levels) level.message_cost = Seconds(1e-4);
  const ChainCost load = given.load(LoadKind::step, 6);
  // Layer 1 on device 2, twice as fast: 3 ms, and 0.1 ms for an activation and a gradient on either side.
  CHECK(load.stage(1, 2, {4, 1}) == exactly(5 * 0.0034));
  // The first and the last stage have neighbours at one side only.
  CHECK(load.stage(0, 1, {4, 1}) == exactly(5 * 0.0017));
  CHECK(load.stage(1, 3, {4, 1}) == exactly(5 * 0.0077));
  CHECK(load.stage(0, 3, {4, 1}) == exactly(5 * 0.009));
  // A port is busy for 5 * 0.75 ms; whoever begins here has layer 1 and two messages.
  CHECK(load.cut(1, {4, 1}, CutSide::in) == exactly(5 * 0.0032));
  // 6 ms each way, whatever part of it the devices handle; without overlap both ends do, one after the other.
  CHECK(load.fill(1, {2, 1}) == exactly(0.012));
  for (Level& level : given.cluster.levels) level.overlap = 0;
  CHECK(given.load(LoadKind::step, 6).fill(1, {2, 1}) == exactly(4 * 0.0061));
}

TEST_CASE("where messages cost more than work, no stage counts as more than all layers on one") {
  Fixture given;
  for (Level& level : given.cluster.levels) level.message_cost = Seconds(0.01);
  CHECK(given.load(LoadKind::step, 6).stage(1, 2, {4, 1}) == exactly(5 * 0.009));
}

TEST_CASE("half duplex: a cut's activations and gradients take turns") {
  Fixture given;
  for (Level& level : given.cluster.levels) level.duplex = Duplex::half;
  // 6 MB there and 6 MB back, from node 0 to node 2.
  CHECK(given.load(LoadKind::step, 6).cut(1, {2, 1}, CutSide::out) == exactly(5 * 0.012));
  CHECK(given.load(LoadKind::period, 1).cut(1, {2, 1}, CutSide::out) == exactly(0.012));
}

TEST_CASE("whatever messages cost, no load falls when a stage grows") {
  test::Random random(19);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    test::ProfileSpec spec;
    for (int l = 0; l < 5; ++l)
      spec.layers.push_back({random.unit(), random.unit(), random.integer(0, 3) * 1'000'000,
                             random.integer(0, 3) * 1'000'000, 0, 0, 0});
    const Profile profile = test::make_profile(spec);
    const PricedModel model = price_model(profile, std::vector<int>{1}, {});
    const Chain chain =
        make_chain(make_graph(profile), {0, 1, 2, 3, 4}, model.layers, model.loss, {0.0, 1e-11});
    const Link link{BytesPerSecond(1e9), Seconds(1e-5), Seconds(1e-3 * random.unit()), random.unit(),
                    Duplex::full};
    for (const LoadKind kind :
         {LoadKind::step, LoadKind::steady, LoadKind::step_bound, LoadKind::period, LoadKind::period_bound}) {
      const ChainCost load(chain, {kind, 6, 0.5}, equal_seats(3, {link, link}, {}), {.micro_batches = 6});
      for (int q = 1; q <= 3; ++q) {
        for (int begin = 0; begin < 5; ++begin) {
          for (int end = begin + 1; end <= 5; ++end) {
            const double own = load.stage(begin, end, {0, q});
            if (begin > 0) REQUIRE(load.stage(begin - 1, end, {0, q}) >= own);
            if (end < 5) REQUIRE(load.stage(begin, end + 1, {0, q}) >= own);
          }
        }
      }
    }
  }
}

TEST_CASE("of equally fast links a cut is charged at the one with the smaller latency") {
  Fixture given;
  for (Level& level : given.cluster.levels) level.bandwidth = BytesPerSecond(1e9);
  given.cluster.levels[0].latency = Seconds(1e-6);
  given.cluster.levels[1].latency = Seconds(1e-3);
  // A span of devices 4 and 0 in front of 1, which is on the node of 0 alone.
  given.positions = {1, 4, 0, 5, 2, 3};
  // 6 MB forward and 6 MB back: 2 * (1 us + 6 ms).
  CHECK(given.load(LoadKind::step, 6).fill(1, {1, 2}) == exactly(0.012002));
}

TEST_CASE("memory is that of the smallest device of the stage") {
  const Fixture given;
  const ChainCost load = given.load(LoadKind::step, 6);
  // Layers 0-2: 12 MB of weights and as much of gradients, 24 MB: nodes 0 and 2 hold it, node 1 does not.
  CHECK(load.fits(0, 3, {0, 1}));
  CHECK_FALSE(load.fits(0, 3, {4, 1}));
  CHECK_FALSE(load.fits(0, 3, {3, 2}));
  CHECK(load.fits(Partition{{0, 3, 4}}));
  CHECK_FALSE(load.fits(Partition{{0, 3, 5}}));
  CHECK(load.fits(Partition{{0, 2, 1}, {2, 3, 4}}));  // 8 + 4 MB on a device of node 1
}

TEST_CASE("the bound: as many replicas as there are fast devices, the least all-reduce among them") {
  const Fixture given;
  const PricedModel fast = [&] {
    PricedModel model = given.model;
    for (LayerPrice& layer : model.layers) layer.forward /= 2, layer.backward /= 2;
    return model;
  }();
  const Chain chain = make_chain(given.graph, {0, 1, 2}, fast.layers, fast.loss, {0.0, 0});
  const auto least = [&](LoadKind kind) {
    return ChainCost(chain, {kind, 6},
                     best_seats({given.cluster, given.positions, given.bytes}, {2, 2, 2, 2, 1, 1}, 0),
                     {.micro_batches = 6});
  };
  const ChainCost own = least(LoadKind::steady), bound = least(LoadKind::step_bound);
  // Layer 0: 1.5 ms on a fast device, 3 on the third. q = 1: 6 * 1.5; q = 2: 3 * 1.5 + 0.5; q = 3: 2 * 3 and
  // the cheapest form over 1 GB/s, a ring of 4/3 * 4 ms.
  CHECK(own.stage(0, 1, {0, 1}) == exactly(0.009));
  CHECK(own.stage(0, 1, {0, 2}) == exactly(0.0045 + 0.0005));
  CHECK(own.stage(0, 1, {0, 3}) == exactly(0.006 + 0.004 * 4 / 3));
  // q = 4: two pairs, 2 * 3 and 0.5 + 4.
  CHECK(own.stage(0, 1, {0, 4}) == exactly(0.006 + 0.0045));
  // A micro-batch's way through all layers takes 9 ms, and layer 0 has a backward of 1 ms on a fast device, 2
  // on the third, for each further one of its replica. q = 1: 5 more; q = 2: 2; q = 3 and 4: 2 * 2 ms in all,
  // the first at full speed.
  CHECK(bound.stage(0, 1, {0, 1}) == exactly(0.009 + 5 * 0.001));
  CHECK(bound.stage(0, 1, {0, 2}) == exactly(0.009 + 2 * 0.001));
  CHECK(bound.stage(0, 1, {0, 3}) == exactly(0.009 + 2 * 0.002 - 0.001));
  CHECK(bound.stage(0, 1, {0, 4}) == exactly(0.009 + 2 * 0.002 - 0.001));
  // Layers 1-2 behind layer 0: filled after 1.5, then 6 * 7.5.
  CHECK(bound.stage(1, 3, {0, 1}) == exactly(0.0015 + 0.045));
  CHECK(bound.fits(0, 3, {0, 4}));
  CHECK_FALSE(bound.fits(0, 3, {0, 5}));  // the fifth largest memory is 20 MB
}

}  // namespace pp::plan::chain_cost_test

TEST_SUITE_END();

#include "libplan/cost/recompute.h"

#include <limits>
#include <numeric>

#include "libplan/cost/stage_memory.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/cost/recompute");

namespace pp::plan::recompute_cost_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Positions = std::vector<std::size_t>;

/// By hand: (f, A, x) = (2,8,1), (1,5,1), (3,6,1).
std::vector<RecomputeUnit> example() { return {{0, 2, 8, 1}, {1, 1, 5, 1}, {2, 3, 6, 1}}; }

std::vector<RecomputeUnit> random_units(test::Random& random) {
  std::vector<RecomputeUnit> units;
  for (int i = random.integer(0, 7); i > 0; --i) {
    const int saved = random.integer(0, 9);
    units.push_back({i, static_cast<double>(random.integer(0, 5)), saved, random.integer(0, saved + 1)});
  }
  return units;
}

double seconds_of(const std::vector<RecomputeUnit>& units, const Positions& chosen) {
  double seconds = 0;
  for (const std::size_t i : chosen) seconds += units[i].forward;
  return seconds;
}

Positions positions_of(unsigned set) {
  Positions chosen;
  for (std::size_t i = 0; set >> i != 0; ++i) {
    if ((set >> i & 1) != 0) chosen.push_back(i);
  }
  return chosen;
}

/// The prices of a ProfileSpec at its first size.
std::vector<LayerPrice> prices_of(const Profile& profile) {
  std::vector<LayerPrice> prices;
  for (const LayerProfile& layer : profile.layers) prices.push_back(price_layer(layer, 1, {}));
  return prices;
}

std::vector<RecomputeUnit> units_of(const Profile& profile, const std::vector<int>& layers,
                                    std::int64_t input) {
  return recompute_units(make_graph(profile), prices_of(profile), layers, input);
}

Profile random_profile(test::Random& random) {
  test::ProfileSpec spec;
  for (int l = random.integer(1, 6); l > 0; --l) {
    const int saved = random.integer(0, 40);
    spec.layers.push_back({static_cast<double>(random.integer(0, 5)), 1, random.integer(0, 3),
                           random.integer(0, 9), saved, random.integer(0, saved), random.integer(0, 5)});
  }
  return test::make_profile(spec);
}

}  // namespace

TEST_CASE("three layers: limits 42, 41 and 33 cost 2, 3 and 5") {
  // Two in flight, 10 bytes of other memory; nothing again: 2 * 19 + 10 = 48.
  const auto choose = [](std::int64_t limit) { return choose_units(example(), 2, limit - 10); };
  CHECK(choose(48) == Positions{});
  CHECK(choose(42) == Positions{0});     // 2 * (5 + 6 + 1) + 8 = 32
  CHECK(choose(41) == Positions{0, 1});  // 2 * (6 + 1 + 1) + 8 = 24
  CHECK(choose(33) == Positions{0, 2});  // 2 * (5 + 1 + 1) + 8 = 22
  CHECK(seconds_of(example(), *choose(33)) == 5);
  CHECK(activation_bytes(example(), Positions{0, 2}, 2) == 22);
  // All three: 2 * 3 + 8 = 14.
  CHECK(choose(24) == Positions{0, 1, 2});
  CHECK(choose(23) == std::nullopt);
  CHECK(release_most(example(), 2).bytes == 7 + 4 + 5);
  CHECK(release_most(example(), 2).again == 8);
}

TEST_CASE("choices equal enumeration: the least time within a limit, the least bytes of all") {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    test::Random random(seed);
    const std::vector<RecomputeUnit> units = random_units(random);
    const int in_flight = random.integer(1, 4);
    const std::int64_t limit = random.integer(0, 100);
    double least = kInfinity;
    std::int64_t smallest = std::numeric_limits<std::int64_t>::max();
    for (unsigned set = 0; set < 1U << units.size(); ++set) {
      const Positions chosen = positions_of(set);
      const std::int64_t bytes = activation_bytes(units, chosen, in_flight);
      smallest = std::min(smallest, bytes);
      if (bytes <= limit) least = std::min(least, seconds_of(units, chosen));
    }
    const auto chosen = choose_units(units, in_flight, limit);
    REQUIRE(chosen.has_value() == (least < kInfinity));
    if (chosen) CHECK(seconds_of(units, *chosen) == least);
    if (chosen) CHECK(activation_bytes(units, *chosen, in_flight) <= limit);
    const Released most = release_most(units, in_flight);
    CHECK(activation_bytes(units, {}, in_flight) - in_flight * most.bytes + most.again == smallest);
  }
}

TEST_CASE("a layer that runs again keeps its inputs, and its result where a reader may keep it") {
  // forward, backward, parameters, output, saved, saved_input. b keeps its input; c keeps nothing of its own,
  // so what it needs of b's result b has counted.
  const Profile profile =
      test::make_profile({{{1, 2, 0, 4, 10, 0, 0}, {2, 2, 0, 6, 9, 4, 0}, {3, 2, 0, 1, 2, 0, 0}}, {}, {1}});
  const auto whole = units_of(profile, {0, 1, 2}, 0);
  CHECK(whole[0] == RecomputeUnit{0, 0.001, 10, 0});
  CHECK(whole[1] == RecomputeUnit{1, 0.002, 9, 4 + 5});  // the input, and the 5 bytes that may be its result
  CHECK_FALSE(whole[1].releases());
  CHECK(whole[2] == RecomputeUnit{2, 0.003, 2, 6});
  // As the first of its stage b's input stands in the stage's input, however little of it may be counted there.
  CHECK(units_of(profile, {1}, 4)[0] == RecomputeUnit{1, 0.002, 5, 0});
  CHECK(units_of(profile, {1}, 3)[0] == RecomputeUnit{1, 0.002, 6, 1});
}

TEST_CASE("a block that runs again keeps what it reads from the stage, and no tensor inside") {
  // Outputs of 4, 6, 5, 7 and 2 bytes, which their readers keep; blocks are layers 1 and 2, 3 and 4.
  const Profile profile = test::make_profile({{{1, 2, 0, 4, 10, 0, 0},
                                               {2, 2, 0, 6, 9, 4, 3},
                                               {2, 2, 0, 5, 6, 6, 8},
                                               {4, 2, 0, 7, 8, 5, 0},
                                               {4, 2, 0, 2, 9, 7, 1}},
                                              {},
                                              {1}});
  PlanGraph graph = make_graph(profile);
  graph.recompute_blocks = {{1, 2}, {3, 4}};
  const auto units = [&](const std::vector<int>& layers, std::int64_t input) {
    return recompute_units(graph, prices_of(profile), layers, input);
  };
  const std::vector<RecomputeUnit> all{{0, 0.001, 10, 0}, {1, 0.004, 15, 4, 8}, {3, 0.008, 17, 5, 1}};
  CHECK(units({0, 1, 2, 3, 4}, 0) == all);
  // The stage's input is kept in any case; half a block is layers.
  CHECK(units({3, 4}, 5) == std::vector<RecomputeUnit>{{3, 0.008, 12, 0, 1}});
  CHECK(units({2, 3, 4}, 6).size() == 2);
  CHECK(units({1}, 4) == std::vector<RecomputeUnit>{{1, 0.002, 5, 0, 3}});
}

TEST_CASE("the relaxed time grows with the stage and is a bound of every choice, whole stages too") {
  test::Random random(3);
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    const Profile profile = random_profile(random);
    const PlanGraph graph = make_graph(profile);
    const std::vector<LayerPrice> prices = prices_of(profile);
    const int layers = graph.size();
    std::vector<int> order(at(layers));
    std::iota(order.begin(), order.end(), 0);
    const Chain chain = make_chain(graph, order, prices, {}, {});
    const ChainUnits units(graph, prices, order);
    InFlight in_flight{.all = true, .micro_batches = random.integer(1, 5)};
    in_flight.recompute = RecomputeMode::automatic;
    in_flight.units = &units;
    const std::int64_t limit = random.integer(0, 300);
    const StageMemory memory(chain, in_flight, {limit, 0});
    const RecomputeTime time(chain, memory);
    const auto seconds = [&](int begin, int end) { return time.seconds(begin, end, 1); };
    for (int begin = 0; begin < layers; ++begin) {
      for (int end = begin + 2; end <= layers; ++end)
        CHECK(seconds(begin, end) >= std::max(seconds(begin, end - 1), seconds(begin + 1, end)));
    }
    // All layers as one stage: what its memory is besides the activations, and both ways to make room.
    const Partition stage{{0, layers, 1}};
    const StageBytes part = StageMemory(chain, {.all = true, .micro_batches = 1}, {}).stages(stage)[0];
    const std::int64_t room = limit - (part.total() - part.saved);
    const auto chosen = choose_units(units.stage(0, layers, 0), in_flight.micro_batches, room);
    CHECK(memory.fits(stage) == (chosen.has_value() || part.saved <= room));
    if (chosen) CHECK(seconds(0, layers) <= seconds_of(units.stage(0, layers, 0), *chosen) + 1e-12);
    if (part.saved <= room) CHECK(seconds(0, layers) <= chain.between(0, layers).times.forward + 1e-12);
  }
}

}  // namespace pp::plan::recompute_cost_test

TEST_SUITE_END();

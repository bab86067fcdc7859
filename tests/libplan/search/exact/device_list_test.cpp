// The search over an ordered list of devices that differ.
#include <algorithm>
#include <numeric>

#include "libplan/search/exact/label_search.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/exact/device_list");

namespace pp::plan::device_list_test {
namespace {

using test::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double total(const std::vector<double>& values, int begin, int end) {
  return std::accumulate(values.begin() + begin, values.begin() + end, 0.0);
}

/// Devices on nodes: the bandwidth inside one and between two.
struct Machine {
  std::vector<int> node;  ///< of each position of the list
  std::vector<double> speed;
  std::vector<double> memory;  ///< empty: no limit
  double inside = 1;
  double between = 1;

  int size() const { return static_cast<int>(node.size()); }
};

/// stage = (C/speed + 2(q-1)/q W/B)/q over the slowest of its devices and links, cut = 2x/(qB) over the link
/// between neighbouring positions; memory K (A + x of the first boundary), K as in the table of Example B.
class ListCost : public StageCost, public ExactMemory {
 public:
  Machine machine;
  std::vector<double> times, weights, cuts, saved;  ///< cuts[k] of boundary k
  bool summed = false;                              ///< whether passage and fill count

  double slowest(DeviceSpan span) const {
    return *std::min_element(machine.speed.begin() + span.first, machine.speed.begin() + span.end());
  }
  double link(int position) const {
    const auto p = at(position);
    return machine.node[p - 1] == machine.node[p] ? machine.inside : machine.between;
  }
  double stage(int begin, int end, DeviceSpan span) const override {
    const bool across = std::adjacent_find(machine.node.begin() + span.first, machine.node.begin() + span.end(),
                                           std::not_equal_to<>()) != machine.node.begin() + span.end();
    const double rate = across ? machine.between : machine.inside;
    const double reduce = 2.0 * (span.count - 1) / span.count * total(weights, begin, end) / rate;
    return (total(times, begin, end) / slowest(span) + reduce) / span.count;
  }
  double cut(int boundary, DeviceSpan span, CutSide side) const override {
    const double rate = link(side == CutSide::in ? span.end() : span.first);
    return 2 * cuts[at(boundary)] / (span.count * rate);
  }
  /// The least window that the devices behind force.
  bool fits(int begin, int end, DeviceSpan span) const override {
    const int window = (span.first + span.count + span.count - 1) / span.count;
    return holds(window * total(saved, begin, end), span);
  }
  bool uniform() const override { return false; }
  double fastest() const { return *std::ranges::max_element(machine.speed); }
  double base() const override {
    return summed ? total(times, 0, static_cast<int>(times.size())) / fastest() : 0;
  }
  double passage(int boundary, DeviceSpan span) const override {
    return summed ? total(times, 0, boundary) * (1 / slowest(span) - 1 / fastest()) : 0;
  }
  double fill(int boundary, DeviceSpan span) const override {
    return summed ? 2 * cuts[at(boundary)] / link(span.first) : 0;
  }
  int demand(DeviceSpan span, const Behind& behind) const override {
    return span.count * (1 + (behind.demand + span.count - 1) / span.count);
  }
  bool fits(const StageRange& stage, DeviceSpan span, int demand) const override {
    const double input = stage.begin == 0 ? 0 : cuts[at(stage.begin)];
    const int window = demand / stage.replicas;
    return holds(window * (total(saved, stage.begin, stage.end) + input), span);
  }
  bool fits(const Partition& partition) const override {
    const std::vector<DeviceSpan> spans = spans_of(partition);
    int wanted = 0;
    for (std::size_t s = partition.size(); s-- > 0;) {
      wanted = demand(spans[s], {.demand = wanted});
      if (!fits(partition[s], spans[s], wanted)) return false;
    }
    return true;
  }

 private:
  bool holds(double bytes, DeviceSpan span) const {
    return machine.memory.empty() ||
           bytes <= *std::min_element(machine.memory.begin() + span.first, machine.memory.begin() + span.end());
  }
};

bool fits_at_least(const Partition& partition, const ListCost& cost) {
  const std::vector<DeviceSpan> spans = spans_of(partition);
  for (std::size_t s = 0; s < partition.size(); ++s) {
    if (!cost.fits(partition[s].begin, partition[s].end, spans[s])) return false;
  }
  return true;
}

struct Optimum {
  double value = kInfinity;
  double objective = kInfinity;
};
Optimum brute_force(const SearchSpace& space, const ListCost& cost, bool exact_memory) {
  Optimum best;
  test::for_each_partition(space, [&](const Partition& partition) {
    if (!(exact_memory ? cost.fits(partition) : fits_at_least(partition, cost))) return;
    best.value = std::min(best.value, largest_load(partition, space.layers, cost));
    best.objective = std::min(best.objective, objective_of(partition, space.layers, cost));
  });
  return best;
}

ListCost example_of_levels(std::vector<int> node) {
  ListCost cost;
  cost.machine = {std::move(node), {1, 1, 1, 1}, {}, 8, 1};
  cost.times = {8, 4, 2, 2};
  cost.weights = {8, 4, 1, 1};
  cost.cuts = {0, 2, 1, 1, 0};
  cost.saved = {0, 0, 0, 0};
  return cost;
}

/// `counts` devices per group from the innermost level outwards: node of each device, in a random order.
Machine random_machine(Random& random, int nodes, int per_node) {
  Machine machine;
  for (int n = 0; n < nodes; ++n) machine.node.insert(machine.node.end(), at(per_node), n);
  for (std::size_t i = machine.node.size(); i > 1; --i)
    std::swap(machine.node[i - 1], machine.node[at(random.integer(0, static_cast<int>(i) - 1))]);
  for (int i = 0; i < machine.size(); ++i) machine.speed.push_back(random.integer(1, 4));
  machine.inside = random.integer(2, 10);
  machine.between = 1;
  return machine;
}

ListCost random_cost(Random& random, Machine machine, int layers, bool whole) {
  ListCost cost;
  cost.machine = std::move(machine);
  cost.times = random.values(layers, 9, whole);
  cost.weights = random.values(layers, 9, whole);
  cost.cuts = random.values(layers + 1, 6, whole);
  cost.saved = random.values(layers, 9, whole);
  return cost;
}

}  // namespace

TEST_CASE("2 nodes of 2: node by node 4.5, scattered 8.0, and 4.5 is the best of all orders") {
  SearchSpace space;
  space.layers = space.devices = 4;
  // Layer 0 on node 0: (8 + 8/8)/2; layer 1 and layers 2-3 on one device each: 4; cut 1: 2*2/2 and 2*2/1.
  const ListCost packed = example_of_levels({1, 1, 0, 0});
  CHECK(largest_load({{0, 1, 2}, {1, 2, 1}, {2, 4, 1}}, 4, packed) == 4.5);
  // As good with fewer stages: layers 1-3 on node 1, (8 + 6/8)/2.
  CHECK(search_least_load(space, packed).partition == Partition{{0, 1, 2}, {1, 4, 2}});
  CHECK(search_least_load(space, packed).value == 4.5);
  // Two replicas of layer 0 stand on both nodes: (8 + 8/1)/2; alone it takes 8 as well.
  CHECK(search_least_load(space, example_of_levels({0, 1, 0, 1})).value == 8.0);
  // Layers 0-1 on the pair in the middle: (12 + 12/8)/2; with layer 0 alone, 1-3 take 8 on the one device
  // behind it.
  CHECK(search_least_load(space, example_of_levels({0, 1, 1, 0})).value == 6.75);
  double best = kInfinity;
  std::vector<int> node{0, 0, 1, 1};
  do best = std::min(best, search_least_load(space, example_of_levels(node)).value);
  while (std::ranges::next_permutation(node).found);
  CHECK(best == 4.5);
}

TEST_CASE("unequal devices: speeds 2,1,1 in this order and in 1,1,2 give 5.5, 1,2,1 gives 6") {
  const auto best = [](std::vector<double> first_to_last) {
    std::ranges::reverse(first_to_last);  // position 0 serves the last layers
    ListCost cost;
    cost.machine = {{0, 0, 0}, std::move(first_to_last), {}, 1, 1};
    cost.times = {6, 5, 4, 3, 2};
    cost.weights = cost.saved = {0, 0, 0, 0, 0};
    cost.cuts = {0, 0, 0, 0, 0, 0};
    SearchSpace space;
    space.layers = 5;
    space.devices = 3;
    return search_least_load(space, cost).value;
  };
  CHECK(best({2, 1, 1}) == 5.5);  // 0-1 in 11/2, 2 in 4, 3-4 in 5
  CHECK(best({1, 1, 2}) == 5.5);  // 0-1 on both slow ones 11/2, 2-4 in 9/2
  CHECK(best({1, 2, 1}) == 6);
}

TEST_CASE("every list: the least largest load and the least objective equal brute force") {
  Random random(36);
  const std::vector<std::pair<int, int>> machines{{2, 2}, {3, 2}, {1, 4}, {2, 3}, {6, 2}};
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    const auto [nodes, per_node] = machines[at(round) % machines.size()];
    ListCost cost = random_cost(random, random_machine(random, nodes, per_node),
                                random.integer(1, nodes * per_node > 6 ? 4 : 6), round % 2 == 0);
    const bool limited = round % 3 == 0;
    if (limited) cost.machine.memory = random.values(cost.machine.size(), 60, true);
    SearchSpace space;
    space.layers = static_cast<int>(cost.times.size());
    space.devices = cost.machine.size();
    if (round % 5 == 0) space.max_replicas = 2;
    if (round % 7 == 0) space.max_stages = 2;
    const Optimum expected = brute_force(space, cost, false);
    const BottleneckResult found = search_least_load(space, cost);
    REQUIRE(found.value == expected.value);
    if (found.feasible()) REQUIRE(fits_at_least(found.partition, cost));

    cost.summed = true;
    const double objective = search_points(space, cost).objective;
    if (!found.feasible()) {
      REQUIRE(objective == kInfinity);
    } else {
      REQUIRE(objective == doctest::Approx(brute_force(space, cost, false).objective).epsilon(1e-12));
    }
  }
}

TEST_CASE("with the exact window of every stage both objectives equal brute force") {
  Random random(37);
  int feasible = 0;
  int relaxed_too_low = 0;
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    ListCost cost =
        random_cost(random, random_machine(random, 2, round % 2 == 0 ? 2 : 3), random.integer(1, 6), true);
    cost.machine.memory = random.values(cost.machine.size(), 80, true);
    cost.summed = true;
    SearchSpace space;
    space.layers = static_cast<int>(cost.times.size());
    space.devices = cost.machine.size();
    const Optimum expected = brute_force(space, cost, true);
    const BottleneckResult found = search_least_load(space, cost, &cost);
    REQUIRE(found.value == expected.value);
    const ParetoFront points = search_points(space, cost, &cost);
    REQUIRE(points.feasible() == found.feasible());
    if (search_least_load(space, cost).value < found.value) ++relaxed_too_low;
    if (!found.feasible()) continue;
    ++feasible;
    REQUIRE(cost.fits(found.partition));
    REQUIRE(points.objective == doctest::Approx(expected.objective).epsilon(1e-12));
  }
  CHECK(feasible > 1000);
  CHECK(relaxed_too_low > 50);  // else the exact windows were never needed
}

TEST_CASE("nothing fits: no partition, and the value says so") {
  ListCost cost = example_of_levels({0, 0, 1, 1});
  cost.saved = {5, 5, 5, 5};
  cost.machine.memory = {4, 4, 4, 4};
  SearchSpace space;
  space.layers = space.devices = 4;
  const BottleneckResult found = search_least_load(space, cost);
  CHECK_FALSE(found.feasible());
  CHECK(found.value == kInfinity);
  CHECK_FALSE(search_points(space, cost).feasible());
}

TEST_CASE("the device with room takes the heavy layer: only a list that gives it fits") {
  // Layer 0 keeps 9 bytes, twice in front of another stage; the devices hold 20 and 3.
  ListCost cost;
  cost.machine = {{0, 0}, {1, 1}, {3, 20}, 1, 1};
  cost.times = {2, 2};
  cost.weights = {0, 0};
  cost.cuts = {0, 0, 0};
  cost.saved = {9, 2};
  SearchSpace space;
  space.layers = space.devices = space.exact_stages = 2;
  CHECK(search_least_load(space, cost).partition == Partition{{0, 1, 1}, {1, 2, 1}});
  std::ranges::reverse(cost.machine.memory);
  CHECK_FALSE(search_least_load(space, cost).feasible());
}

}  // namespace pp::plan::device_list_test

TEST_SUITE_END();

#include "libplan/search/exact/any_order.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "libplan/cost/chain_cost.h"
#include "libplan/cost/constants.h"
#include "libplan/cost/priced_model.h"
#include "libplan/search/candidates/find_candidates.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/graphs.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/exact/any_order");

namespace pp::plan::any_order_test {
namespace {

using test::activations;
using test::for_each_staging;
using test::make_profile;
using test::Random;
using test::random_graph;
using test::Stages;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

const Link kLink{BytesPerSecond(1e9), Seconds(1e-4)};
const OptimizerCost kOptimizer{1, 1e-10, 0.25};
const OperationCost kFixed{0.5, 0.75};
constexpr std::size_t kSets = 4096;

/// A profile with everything a search over its down-sets needs.
struct Instance {
  explicit Instance(const Profile& profile)
      : graph(make_graph(profile)),
        model(price_model(profile, std::vector<int>{1}, {})),
        lattice(make_lattice(graph, kSets).value()),
        chain(make_lattice_chain(graph, lattice, model.layers, model.loss, kOptimizer)) {
    chain.fixed = kFixed;
  }

  PlanGraph graph;
  PricedModel model;
  Lattice lattice;
  Chain chain;
};

SearchSpace space_of(const Instance& instance, int devices, int micro_batches) {
  SearchSpace space;
  space.layers = instance.lattice.size() - 1;
  space.devices = devices;
  space.max_replicas = std::min(devices, micro_batches);
  return space;
}

/// What a stage's weights and the devices behind it may come to.
bool has_room(std::int64_t weights, int behind, std::int64_t room) { return weights + 20 * behind <= room; }

class Cramped final : public StageCost {
 public:
  Cramped(const StageCost& cost, const Chain& chain, std::int64_t room)
      : cost_(cost), chain_(chain), room_(room) {}
  double stage(int begin, int end, DeviceSpan span) const override { return cost_.stage(begin, end, span); }
  double cut(int boundary, DeviceSpan span, CutSide side) const override {
    return cost_.cut(boundary, span, side);
  }
  bool fits(int begin, int end, DeviceSpan span) const override {
    return has_room(chain_.between(begin, end).parameters, span.first, room_);
  }

 private:
  const StageCost& cost_;
  const Chain& chain_;
  std::int64_t room_;
};

ChainCost load_of(const Instance& instance, const SearchSpace& space, LoadKind kind, int micro_batches) {
  return {instance.chain, {kind, micro_batches}, equal_seats(space.replica_limit(), {kLink, kLink}, {}), {}};
}

/// Period and J written out for one staging with replicas.
struct Price {
  double period = 0;      ///< asynchronous, of one update
  double step_bound = 0;  ///< certificate of the steady step
};

Price price(const Instance& instance, const Stages& stages, const std::vector<int>& replicas,
            int micro_batches) {
  Price result;
  double before = 0, whole = 0;
  for (const LayerPrice& layer : instance.model.layers) whole += layer.forward + layer.backward;
  std::vector<bool> done(at(instance.graph.size()), false);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    double f = 0.5, b = 0.75, weights = 0;  // kFixed
    for (const int l : stages[s]) {
      const auto layer = at(l);
      done[layer] = true;
      f += instance.model.layers[layer].forward;
      b += instance.model.layers[layer].backward;
      weights += static_cast<double>(instance.graph.layers[layer].parameter_bytes);
    }
    const int q = replicas[s];
    const double n = (micro_batches + q - 1) / q;
    const double all_reduce =
        cheapest(std::array{ring_all_reduce(q, kLink), tree_all_reduce(q, kLink)}, Reduction{weights});
    const double update = weights * 1e-10 + 0.25;  // kOptimizer
    result.period = std::max(result.period, (n * (f + b) + all_reduce + update) * micro_batches / (n * q));
    // On the way to a stage the bound counts the fixed costs of that stage only.
    result.step_bound =
        std::max({result.step_bound, before + f + b + (n - 1) * (f + b), n * (f + b) + all_reduce + update});
    result.step_bound = std::max({result.step_bound, whole + (n - 1) * f + 0.5, whole + (n - 1) * b + 0.75});
    before += f + b - 1.25;

    double bytes = 0;
    for (int l = 0; l < instance.graph.size() && s + 1 < stages.size(); ++l) {
      const auto layer = at(l);
      const auto open = [&](int reader) { return !done[at(reader)]; };
      if (!done[layer] || std::ranges::none_of(instance.graph.layers[layer].consumers, open)) continue;
      bytes += static_cast<double>(instance.model.layers[layer].output);
    }
    const double transfer = bytes / 1e9;
    for (std::size_t side = s; side < s + 2 && side < stages.size(); ++side)
      result.period = std::max(result.period, micro_batches * transfer / replicas[side]);
  }
  return result;
}

bool have_room(const Instance& instance, const Stages& stages, const std::vector<int>& replicas,
               std::int64_t room) {
  int behind = 0;
  for (std::size_t s = stages.size(); s-- > 0; behind += replicas[s]) {
    std::int64_t weights = 0;
    for (const int l : stages[s]) weights += instance.graph.layers[at(l)].parameter_bytes;
    if (!has_room(weights, behind, room)) return false;
  }
  return true;
}

/// The least of every price over all stagings and replicas on at most `devices` devices that have room.
Price cheapest(const Instance& instance, int devices, int micro_batches, std::int64_t room) {
  Price least{kInfinity, kInfinity};
  for (int stages = 1; stages <= std::min(devices, instance.graph.size()); ++stages) {
    for_each_staging(instance.graph, stages, [&](const Stages& sets) {
      test::for_each_replicas(stages, devices, micro_batches, [&](const std::vector<int>& replicas) {
        if (!have_room(instance, sets, replicas, room)) return;
        const Price one = price(instance, sets, replicas, micro_batches);
        least.period = std::min(least.period, one.period);
        least.step_bound = std::min(least.step_bound, one.step_bound);
      });
    });
  }
  return least;
}

Profile diamond() {
  return make_profile(
      {{{7, 0, 10, 100, 0, 0, 0}, {3, 0, 20, 200, 0, 0, 0}, {10, 0, 30, 300, 0, 0, 0}, {4, 0, 40, 0, 0, 0, 0}},
       {{0, 1}, {0, 2}, {1, 3}, {2, 3}},
       {1}});
}

}  // namespace

TEST_CASE("the diamond's lattice: six sets, what they come to and what crosses them") {
  // 0: {}, 1: s, 2: sa, 3: sb, 4: sab, 5: all.
  const Instance instance(diamond());
  REQUIRE(instance.lattice.size() == 6);
  CHECK(instance.lattice.waists == std::vector<int>{0, 1, 4, 5});
  CHECK(instance.chain.upto[3].times.forward == exactly(0.017));
  CHECK(instance.chain.upto[4].parameters == 60);
  // s is read by b while only a is done; a alone waits for c.
  CHECK(instance.chain.cut_activation == std::vector<double>{0, 100, 300, 400, 500, 0});
  CHECK(instance.chain.cut_activations == std::vector<int>{0, 1, 2, 2, 2, 0});
  // What comes next reads at least s, s, s or a and b; what came last sends at least s, a, b or a.
  CHECK(activations(instance.chain.least_in) == std::vector<double>{0, 100, 100, 100, 500, 0});
  CHECK(activations(instance.chain.least_out) == std::vector<double>{0, 100, 200, 300, 200, 0});
}

TEST_CASE("the diamond on two devices takes 14 ms beside the fixed costs, and the sets of its stages") {
  // s and b behind one another would be 17; {s, a} and {b, c} are 10 and 14, {s, b}, {a, c} 17 and 7 (README).
  const Instance instance(diamond());
  SearchSpace space = space_of(instance, 2, 1);
  space.max_replicas = 1;
  const BottleneckResult best =
      search_any_order(instance.lattice, space, load_of(instance, space, LoadKind::period, 1));
  CHECK(best.value == exactly(0.014 + 70 * 1e-10 + 0.5 + 0.75 + 0.25));  // b and c have 70 bytes to update
  CHECK(best.partition == Partition{{0, 2, 1}, {2, 5, 1}});
}

TEST_CASE("no set parts layers that share weights") {
  PlanGraph graph = make_graph(diamond());
  graph.tied = {{1, 3}};  // a and c, so b is with them
  const Lattice lattice = make_lattice(graph, kSets).value();
  REQUIRE(lattice.size() == 4);  // {}, s, sb, all
  CHECK(layers_between(lattice.sets[1], lattice.sets[2], 4) == std::vector<int>{2});
}

TEST_CASE("too many sets: no lattice") {
  const PlanGraph graph = make_graph(diamond());
  CHECK_FALSE(make_lattice(graph, 5).has_value());
  CHECK(make_lattice(graph, 6).has_value());
}

TEST_CASE("period and bound, with room or little of it, equal brute force over all down-set chains") {
  Random random(41);
  for (int round = 0; round < 3000; ++round) {
    CAPTURE(round);
    const Instance instance(random_graph(random, random.integer(2, 8)));
    const int devices = random.integer(1, 4);
    const int micro_batches = random.integer(1, 6);
    const SearchSpace space = space_of(instance, devices, micro_batches);
    const std::int64_t weights = instance.chain.upto.back().parameters;
    const std::int64_t room =
        random.integer(0, 1) == 0 ? 1'000'000 : random.integer(0, static_cast<int>(weights));
    const Price least = cheapest(instance, devices, micro_batches, room);
    const ChainCost period = load_of(instance, space, LoadKind::period, micro_batches);
    const ChainCost step = load_of(instance, space, LoadKind::step_bound, micro_batches);
    const Cramped some_period(period, instance.chain, room), some_step(step, instance.chain, room);
    const double found = search_any_order(instance.lattice, space, some_period).value;
    const double bounded = search_any_order(instance.lattice, space, some_step).value;
    if (least.period == kInfinity) {
      REQUIRE(found == kInfinity);
      REQUIRE(bounded == kInfinity);
      continue;
    }
    REQUIRE(found == exactly(least.period));
    REQUIRE(bounded == exactly(least.step_bound));
    for (const double known : {0.0, 0.7, 1.0}) {
      const auto bound = [&](double share) {
        return any_order_bound(instance.lattice, space, some_step, known * least.step_bound,
                               share * least.step_bound);
      };
      REQUIRE(bound(1.1) == exactly(least.step_bound));
      REQUIRE(bound(0.9) <= exactly(least.step_bound));
      REQUIRE(bound(0.9) >= 0.9 * least.step_bound);
    }
  }
}

TEST_CASE("stage counts and replicas that are asked for are kept") {
  Random random(42);
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    const Instance instance(random_graph(random, 6));
    SearchSpace space = space_of(instance, 4, 4);
    space.exact_stages = 3;
    space.replicas = {1, 2, 1};
    double least = 1e9;
    for_each_staging(instance.graph, 3, [&](const Stages& sets) {
      least = std::min(least, price(instance, sets, space.replicas, 4).period);
    });
    const BottleneckResult best =
        search_any_order(instance.lattice, space, load_of(instance, space, LoadKind::period, 4));
    REQUIRE(best.value == exactly(least));
    CHECK(replicas_of(best.partition) == space.replicas);
    space.exact_stages = 0;
    space.replicas.clear();
    space.max_stages = 2;
    CHECK(search_any_order(instance.lattice, space, load_of(instance, space, LoadKind::period, 4))
              .partition.size() <= 2);
  }
}

TEST_CASE("the bound without an order is below the one over all of them") {
  Random random(43);
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const Instance instance(random_graph(random, random.integer(2, 7)));
    std::vector<int> order(at(instance.graph.size()));
    std::iota(order.begin(), order.end(), 0);
    Chain chain = make_chain(instance.graph, order, instance.model.layers, instance.model.loss, kOptimizer);
    chain.fixed = kFixed;
    const StageMemory unlimited(chain, {}, {});
    SearchSpace space = space_of(instance, random.integer(1, 4), 4);
    for (const bool synchronous : {true, false}) {
      const Cluster cluster = flat_cluster(4, DeviceKind::cpu, kLink.bandwidth, kLink.latency, {});
      const SearchCase what{.chain = chain,
                            .bound_chain = chain,
                            .memory = unlimited,
                            .synchronous = synchronous,
                            .micro_batches = 4,
                            .links = {kLink, kLink},
                            .best_links = {kLink, kLink},
                            .cluster = cluster};
      const LoadKind kind = synchronous ? LoadKind::step_bound : LoadKind::period_bound;
      const double over_all =
          search_any_order(instance.lattice, space, load_of(instance, space, kind, 4)).value;
      CHECK(order_free_bound(what, space) <= over_all * (1 + 1e-12));
    }
  }
}

}  // namespace pp::plan::any_order_test

TEST_SUITE_END();

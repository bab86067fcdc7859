#include "libplan/cost/chain.h"

#include <malloc.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "libplan/cost/chain_cost.h"
#include "libplan/cost/priced_model.h"
#include "libplan/cost/stage_memory.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/cost/chain");

namespace pp::plan::chain_test {
namespace {

using test::activations;

Chain chain_of(const Profile& profile, std::vector<int> order = {}) {
  const PlanGraph graph = make_graph(profile);
  if (order.empty()) {
    order.resize(graph.layers.size());
    std::iota(order.begin(), order.end(), 0);
  }
  const PricedModel model = price_model(profile, std::vector<int>{1}, {});
  return make_chain(graph, order, model.layers, model.loss, {1.0, 0});
}

/// Chain 0-1-2-3-4 plus 0 -> 3, outputs 4,2,2,2,1; every layer saves its inputs.
Profile skip_profile() {
  return test::make_profile({{{1, 2, 10, 4, 0, 0, 5},
                              {1, 2, 10, 2, 4, 4, 1},
                              {1, 2, 10, 2, 2, 2, 1},
                              {1, 2, 10, 2, 6, 6, 9},
                              {1, 2, 10, 1, 2, 2, 1}},
                             {{0, 1}, {1, 2}, {2, 3}, {0, 3}, {3, 4}},
                             {1}});
}

}  // namespace

TEST_CASE("a skip tensor is part of every boundary it crosses") {
  const Chain chain = chain_of(skip_profile());
  CHECK(chain.cut_activation == std::vector<double>{0, 4, 6, 6, 2, 0});
  CHECK(chain.cut_gradient == chain.cut_activation);
  CHECK(chain.cut_activations == std::vector{0, 1, 2, 2, 1, 0});
}

TEST_CASE("stages receive and send each tensor once, straight from its producer") {
  const Chain chain = chain_of(skip_profile());
  // {0},{1,2},{3,4}: stage 1 receives 4 and sends 2, stage 2 receives 2 + 4.
  CHECK(chain.in_bytes(0, 1) == 0);
  CHECK(chain.out_bytes(0, 1) == 4);
  CHECK(chain.in_bytes(1, 3) == 4);
  CHECK(chain.out_bytes(1, 3) == 2);
  CHECK(chain.in_bytes(3, 5) == 6);
  CHECK(chain.out_bytes(3, 5) == 0);
  // What layers 3 and 4 keep: 6 + 2, of which the 6 that came in are held as input.
  CHECK(chain.between(3, 5).saved == 8);
  CHECK(chain.entering_bytes(3, 5) == 6);
  // With the cut before layer 2, layer 3 gets one of its inputs from the stage itself.
  CHECK(chain.entering_bytes(2, 5) == 2 + 4);
  CHECK(activations(chain.least_in) == std::vector<double>{0, 4, 2, 6, 2, 0});
  CHECK(activations(chain.least_out) == std::vector<double>{0, 4, 2, 2, 2, 0});
}

TEST_CASE("a workspace hides in what the layers behind it save") {
  const Chain chain = chain_of(skip_profile());
  // Saved 0, 4, 2, 6, 2 and workspace 5, 1, 1, 9, 1. All layers: most is held at layer 3, 0+4+2+6 + 9 = 21,
  // of which all save 14. Layers 0 to 2: 6 + 1 at the last one; at layer 0, with 5, nothing is saved yet.
  CHECK(chain.transient(0, 5) == 7);
  CHECK(chain.transient(0, 3) == 1);
  CHECK(chain.transient(1, 3) == 1);
  CHECK(chain.transient(3, 4) == 9);
  CHECK(chain.transient(0, 1) == 5);
}

TEST_CASE("whatever the order of the chain, a stage runs its layers in the order of the model") {
  // Three times: a layer, two branches of three, a layer that joins them.
  std::mt19937 random(7);
  test::ProfileSpec spec;
  for (int first = 0; first < 24; first += 8) {
    if (first > 0) spec.edges.emplace_back(first - 1, first);
    for (const int branch : {1, 2}) {
      spec.edges.emplace_back(first, first + branch);
      for (const int from : {branch, branch + 2}) spec.edges.emplace_back(first + from, first + from + 2);
      spec.edges.emplace_back(first + branch + 4, first + 7);
    }
  }
  std::uniform_int_distribution<std::int64_t> bytes(0, 9);
  for (int layer = 0; layer < 24; ++layer)
    spec.layers.push_back({1, 2, 10, 1, bytes(random), 0, 3 * bytes(random)});
  const Profile profile = test::make_profile(spec);
  bool other_order = false;
  for (int round = 0; round < 20; ++round) {
    std::vector<int> order, ready{0}, awaited(24, 0);
    for (const auto& [from, to] : spec.edges) ++awaited[at(to)];
    while (!ready.empty()) {
      const auto next = ready.begin() + static_cast<int>(random() % ready.size());
      order.push_back(*next);
      ready.erase(next);
      for (const auto& [from, to] : spec.edges) {
        if (from == order.back() && --awaited[at(to)] == 0) ready.push_back(to);
      }
    }
    const Chain chain = chain_of(profile, order);
    for (int begin = 0; begin < 24; ++begin) {
      for (int end = begin + 1; end <= 24; ++end) {
        std::vector<int> stage(order.begin() + begin, order.begin() + end);
        other_order |= !std::ranges::is_sorted(stage);
        std::ranges::sort(stage);
        std::int64_t saved = 0, most = 0;
        for (const int layer : stage) {
          saved += spec.layers[at(layer)].saved;
          most = std::max(most, saved + spec.layers[at(layer)].workspace);
        }
        REQUIRE(chain.transient(begin, end) == most - saved);
      }
    }
  }
  CHECK(other_order);
}

TEST_CASE("messages between workers: a buffer at either end of each, nothing among CPU devices of one node") {
  // In 4, out 2: inputs and outputs forward, their gradients backward.
  CHECK(message_bytes(HandOver::copy, 4, 2) == 4 + 2 + 2 + 4);
  CHECK(message_bytes(HandOver::reference, 4, 2) == 0);

  Device a, b;
  b.index = 1;
  CHECK(hand_over(a, b) == HandOver::reference);
  b.node = "b";
  CHECK(hand_over(a, b) == HandOver::copy);
  a.kind = b.kind = DeviceKind::cuda;
  b.node = a.node;
  CHECK(hand_over(a, b) == HandOver::copy);
  b.index = a.index;
  CHECK(hand_over(a, b) == HandOver::reference);
}

TEST_CASE("a list of devices hands over by reference where every two of them do") {
  Cluster cluster = test::make_cluster(4);
  cluster.devices[2].node = cluster.devices[3].node = "b";
  CHECK(hand_over(cluster, std::vector{0, 1}) == HandOver::reference);
  CHECK(hand_over(cluster, std::vector{2, 3}) == HandOver::reference);
  CHECK(hand_over(cluster, std::vector{0, 2}) == HandOver::copy);
  CHECK(hand_over(cluster, std::vector{0, 1, 2, 3}) == HandOver::copy);
}

TEST_CASE("memory of a stage: parts by hand, and the bound never above the exact sum") {
  const Chain chain = chain_of(skip_profile());
  const StageMemory memory(chain, {.rule = WindowRule::win, .micro_batches = 8}, {});
  // Stages {0},{1,2},{3,4}, one device each: windows 3, 2, 1.
  const std::vector<StageBytes> parts = memory.stages({{0, 1, 1}, {1, 3, 1}, {3, 5, 1}});
  CHECK(parts[0].in_flight == 3);
  CHECK(parts[1].in_flight == 2);
  CHECK(parts[1].weights + parts[1].gradients + parts[1].optimizer == 60);
  // Layer 1 keeps the 4 that came in, layer 2 the 2 made here: 2 * (2 + 4) + 2 * (4 + 2) + workspace 1.
  CHECK(parts[1].saved == 2);
  CHECK(parts[1].input == 4);
  CHECK(parts[1].boundary == 12);
  CHECK(parts[1].total() == 60 + 12 + 12 + 1);
  const StageMemory tight(chain, {.rule = WindowRule::win, .micro_batches = 8}, {85, 0});
  CHECK(tight.fits(StageRange{1, 3, 1}, 2));
  CHECK(tight.fits_at_least(1, 3, 1, 1));
  const StageMemory short_by_one(chain, {.rule = WindowRule::win, .micro_batches = 8}, {84, 0});
  CHECK_FALSE(short_by_one.fits(StageRange{1, 3, 1}, 2));
  CHECK(short_by_one.fits_at_least(1, 3, 1, 1));  // without boundary buffers: 60 + 2*6 + 1 = 73
}

TEST_CASE(
    "what a memory remembers grows with the layers, not with their square, and is what a new one answers") {
  // 1,500 layers of 1 byte each that is saved: a stage of n layers fits windows up to 2,000 / n.
  constexpr int kLayers = 1500;
  test::ProfileSpec spec;
  spec.layers.assign(kLayers, {.saved = 1});
  const Chain chain = chain_of(test::make_profile(spec));
  const StageMemory memory(chain, {.rule = WindowRule::published, .micro_batches = 4000}, {2000, 0});
  const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
  test::Random random(1);
  for (int begin = 0; begin < kLayers; ++begin) {
    for (int asked = 0; asked < 100; ++asked) {
      const int end = random.integer(begin + 1, kLayers);
      const int window = random.integer(1, 3) * 2000 / (end - begin) / 2;
      if (window < 1) continue;
      CAPTURE(begin);
      CAPTURE(end);
      CAPTURE(window);
      REQUIRE(memory.fits(StageRange{begin, end, 1}, window) == (window * (end - begin) <= 2000));
    }
  }
  CHECK(mallinfo2().uordblks + mallinfo2().hblkhd - before < kLayers * 2048);  // a square: 18 MB
}

TEST_CASE("what fits one replica is asked anew for three, whose micro-batches are others") {
  // Five micro-batches of 10, 10, 10, 5 and 5 bytes: one replica has two of 10 in flight, each of three at most
  // a 10 and a 5.
  test::ProfileSpec spec;
  spec.layers.assign(1, {.saved = 10});
  const Chain chain = chain_of(test::make_profile(spec));
  MicroBatches batch(5);
  batch.full = 3;
  batch.time = batch.bytes = 0.5;
  const StageMemory memory(chain, {.micro_batches = 5, .batch = batch}, {15, 0});
  CHECK_FALSE(memory.fits(StageRange{0, 1, 1}, 2));
  CHECK(memory.fits(StageRange{0, 1, 3}, 6));
  CHECK_FALSE(memory.fits(StageRange{0, 1, 1}, 2));
}

TEST_CASE("windows in memory: all of gpipe, never more than the step has, one version each when stashing") {
  const Chain chain = chain_of(skip_profile());
  const Partition straight{{0, 1, 1}, {1, 3, 1}, {3, 5, 1}};
  const auto windows = [&](const InFlight& in_flight) {
    std::vector<int> result;
    for (const StageBytes& part : StageMemory(chain, in_flight, {}).stages(straight))
      result.push_back(part.in_flight);
    return result;
  };
  CHECK(windows({.all = true, .micro_batches = 7}) == std::vector{7, 7, 7});
  CHECK(windows({.rule = WindowRule::win, .micro_batches = 2}) == std::vector{2, 2, 1});
  CHECK(windows({.rule = WindowRule::wide, .micro_batches = 8}) == std::vector{5, 3, 1});
  CHECK(windows({.rule = WindowRule::explicit_list, .windows = {4, 2, 1}, .micro_batches = 8}) ==
        std::vector{4, 2, 1});
  const InFlight stash{.rule = WindowRule::win, .policy = WeightPolicy::stash};
  CHECK(windows(stash) == std::vector{3, 2, 1});
  CHECK(StageMemory(chain, stash, {}).stages(straight)[0].versions == 2 * 10);
  // 1-4-1: win is 9, 2, 1, the published rule 6, 2, 1.
  const Partition uneven{{0, 1, 1}, {1, 3, 4}, {3, 5, 1}};
  CHECK(StageMemory(chain, stash, {}).stages(uneven)[0].in_flight == 9);
  CHECK(StageMemory(chain, {.rule = WindowRule::published}, {}).stages(uneven)[0].in_flight == 6);
}

TEST_CASE("the certificate of Example C is 48 ms, 43 with all of the all-reduce hidden") {
  const Profile profile = test::example_c();
  const Chain chain = chain_of(profile);
  const auto bound = [&](double overlap) {
    const Link link{BytesPerSecond(1e9), Seconds(0)};
    const ChainCost cost(chain, {LoadKind::step_bound, 6, overlap}, equal_seats(3, {link, link}, {}), {});
    const auto load = [&](int begin, int end, int q) { return cost.stage(begin, end, {0, q}); };
    double best = 1e9;
    for (int cut = 0; cut < 4; ++cut) {
      for (int q = 1; q <= 3; ++q) {
        if (cut == 0) best = std::min(best, load(0, 4, q));
        for (int r = 1; cut != 0 && q + r <= 3; ++r) {
          best = std::min(best, std::max(load(0, cut, q), load(cut, 4, r)));
        }
      }
    }
    for (int a = 1; a < 4; ++a) {
      for (int b = a + 1; b < 4; ++b) {
        best = std::min(best, std::max({load(0, a, 1), load(a, b, 1), load(b, 4, 1)}));
      }
    }
    return best;
  };
  // Layers 0-2 on two devices: 15 + 2*15 = 45 and, with the all-reduce, 15*3 + 3 = 48; layer 3: 18 + 5*3 = 33.
  CHECK(bound(0) == doctest::Approx(0.048).epsilon(1e-12));
  // Layer 0 on one device, 6*6 = 36; layers 1-3 on two: 3*4 forward, 2*8 backward, and 15 of all-reduce, which
  // the last 8 of backward run beside. (One step by itself, whose fill counts: 44.)
  CHECK(bound(1) == doctest::Approx(0.043).epsilon(1e-12));
}

TEST_CASE("equal layers add up to equal bits wherever they stand, and to the same as their prefix sums") {
  // 0.1 ms is no binary fraction: prefix sums of it differ in their last bits, sums of single layers do not.
  test::ProfileSpec spec;
  spec.layers.assign(40, {.forward_ms = 0.1, .backward_ms = 0.3, .saved = 7});
  const Chain chain = chain_of(test::make_profile(spec));
  bool rounded = false;
  for (int begin = 0; begin + 10 < 40; ++begin) {
    const LayerSums sums = chain.total(begin, begin + 10);
    CHECK(sums.times == chain.total(0, 10).times);
    CHECK(sums.saved == 70);
    CHECK(sums.times.forward == doctest::Approx(chain.between(begin, begin + 10).times.forward).epsilon(1e-12));
    rounded |= sums.times.forward != chain.between(begin, begin + 10).times.forward;
  }
  CHECK(rounded);
}

TEST_CASE("neighbours of a stage's replicas, at least: on one node with the rest of the model, else by node") {
  Chain chain = empty_chain(3);
  chain.upto[1] = {.crowded = {.backward = 1}, .beside = {.forward = 8}, .parameters = 30};
  chain.upto[2] = {.crowded = {.backward = 4}, .beside = {.forward = 12}, .parameters = 40};
  chain.profiled_devices = 3;
  const auto beside = [&](int begin, int end, int replicas) {
    return chain.crowding(begin, end, replicas).beside;
  };
  CHECK(beside(0, 1, 1) == 0);     // 0.75 and 0.25: one model
  CHECK(beside(0, 2, 2) == 0.5);   // two models on three devices
  CHECK(beside(0, 1, 3) == 0.75);  // 3 * 0.75 + 0.25 = 2.5 models
  const PassTimes passes = chain.between(0, 2).passes(chain.crowding(0, 2, 2));
  CHECK(passes.forward == 6);   // half of 12
  CHECK(passes.backward == 4);  // the device holds all
  chain.nodes = 2;
  CHECK(beside(0, 2, 3) == 0.5);   // two of the three on one node
  CHECK(beside(0, 1, 3) == 0.25);  // 2 * 0.75 = 1.5; what else is there is not known
  CHECK(beside(0, 2, 2) == 0);
}

}  // namespace pp::plan::chain_test

TEST_SUITE_END();

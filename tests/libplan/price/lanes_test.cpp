// What a few replicas say of all, against the simulation of every one.
#include "libplan/price/simulated.h"

#include <variant>

#include "libplan/answer/make_plan.h"
#include "libplan/price/predict.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/price/lanes");

namespace pp::plan {
namespace {

/// Nodes of `size` devices, 8 GB/s inside and 1 GB/s between them.
Cluster nodes_of(int nodes, int size) {
  Cluster cluster = test::make_cluster(nodes * size, 0, 1e9);
  if (size == 1) return cluster;
  for (int d = 0; d < nodes * size; ++d) cluster.devices[at(d)].node = "n" + std::to_string(d / size);
  Level inner = cluster.levels.front();
  inner.devices = size;
  inner.bandwidth = BytesPerSecond(8e9);
  cluster.levels.insert(cluster.levels.begin(), inner);
  return cluster;
}

Profile layers_with_weights() {
  test::ProfileSpec spec;
  for (int l = 0; l < 4; ++l) spec.layers.push_back({1.0 + l, 2.0 + l, 3'000'000, 400'000, 700'000});
  return test::make_profile(spec);
}

}  // namespace

TEST_CASE("of equal replicas a node of each kind is kept") {
  const Cluster nodes = nodes_of(8, 2), flat = nodes_of(16, 1);
  // 16 micro-batches: all replicas have two, and two nodes stand for all. 20: replicas 0 to 3 have three. 19:
  // on the second node one has three, the other two.
  CHECK(kept_lanes(8, 16, nodes) == std::vector{0, 1, 2, 3});
  CHECK(kept_lanes(8, 20, nodes) == std::vector{0, 1, 4, 5});
  CHECK(kept_lanes(8, 19, nodes) == std::vector{0, 1, 2, 3, 4, 5});
  CHECK(kept_lanes(8, 19, flat) == std::vector{0, 3});
  // Nothing to save; half a node; replicas without a micro-batch.
  CHECK(kept_lanes(2, 16, flat).size() == 2);
  CHECK(kept_lanes(7, 21, nodes).size() == 7);
  CHECK(kept_lanes(8, 7, nodes).size() == 8);
}

TEST_CASE("what the kept replicas say is what the simulation of all says, bit for bit") {
  for (const int size : {1, 2, 4}) {
    for (const int micro_batches : {16, 19, 20}) {
      for (const char* schedule : {"1f1b", "gpipe"}) {
        CAPTURE(size);
        CAPTURE(micro_batches);
        CAPTURE(schedule);
        const Cluster cluster = nodes_of(32 / size, size);
        PlanRequest request;
        request.mini_batch = request.micro_batches.emplace(micro_batches);
        request.schedule = schedule;
        request.cuts = {2};
        request.replicas = {16, 16};
        request.placement = Placement::packed;
        const auto found = make_plan(layers_with_weights(), cluster, request);
        REQUIRE(std::holds_alternative<Plan>(found));
        const Prediction& predicted = std::get<Plan>(found).predicted;
        const SimulationInput all = simulation_input(std::get<Plan>(found), 1);
        REQUIRE(all.programs.workers.size() == 32);
        const SimulationResult result = simulate(all, Events::unsorted);
        CHECK(predicted.step == chained_period(all));
        CHECK(predicted.makespan == result.makespan);
        CHECK(predicted.bubble_fraction == result.bubble_fraction);
        std::map<std::pair<WorkerId, WorkerId>, Bytes> traffic, links;
        for (const MessageEvent& message : result.messages)
          traffic[{message.from, message.to}] += message.bytes;
        for (const LinkPrediction& link : predicted.links) links[{link.from, link.to}] = link.bytes_per_step;
        CHECK(links == traffic);
        REQUIRE(predicted.workers.size() == 32);
        for (std::size_t w = 0; w < predicted.workers.size(); ++w) {
          CHECK(predicted.workers[w].busy == result.busy[w]);
          CHECK(predicted.workers[w].memory == result.memory[w]);
        }
      }
    }
  }
}

}  // namespace pp::plan

TEST_SUITE_END();

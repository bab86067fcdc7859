#include "libplan/search/candidates/ordered_candidates.h"

#include <algorithm>
#include <numeric>

#include "libplan/answer/make_plan.h"
#include "tests/libplan/search/enumerated.h"
#include "tests/libplan/search/searched.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/candidates/ordered_candidates");

namespace pp::plan::ordered_candidates_test {
namespace {

using test::Random;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

/// Groups of `counts` devices, innermost first, at these bandwidths, without latency.
Cluster levels(const std::vector<int>& counts, const std::vector<double>& bandwidths) {
  const int devices = std::accumulate(counts.begin(), counts.end(), 1, std::multiplies<>());
  Cluster cluster = test::make_cluster(devices);
  cluster.levels.clear();
  int size = 1;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    Level level;
    level.name = std::string("level").append(std::to_string(i));
    level.devices = size *= counts[i];
    level.bandwidth = BytesPerSecond(bandwidths[i]);
    cluster.levels.push_back(level);
  }
  return cluster;
}

Plan planned(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  auto result = make_plan(profile, cluster, request);
  if (const auto* none = std::get_if<Infeasible>(&result)) FAIL(none->reason);
  return std::get<Plan>(std::move(result));
}

PlanRequest synchronous(int micro_batches) {
  PlanRequest request;
  request.mini_batch = micro_batches;
  request.micro_batches = micro_batches;
  request.schedule = "1f1b";
  return request;
}

std::vector<int> devices_of(const Plan& plan) {
  std::vector<int> devices;
  for (const Worker& worker : plan.workers) devices.push_back(number(worker.device));
  return devices;
}

Profile random_profile(Random& random, int layers) {
  test::ProfileSpec spec;
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({1.0 * random.integer(1, 9), 1.0 * random.integer(1, 18),
                           random.integer(0, 3) * 1'000'000, random.integer(0, 3) * 1'000'000,
                           random.integer(0, 4) * 1'000'000, 0, 0});
  }
  return test::make_profile(spec);
}

/// Two or three kinds of devices, of which each may be faster for some layers than the others.
void draw_kinds(Random& random, Profile& profile, Cluster& cluster) {
  const int kinds = random.integer(2, 3);
  while (std::ssize(profile.others) + 1 < kinds) {
    Profile other = profile;
    other.others.clear();
    for (LayerProfile& layer : other.layers) {
      layer.points[0].forward.median = Seconds(1e-3 * random.integer(1, 9));
      layer.points[0].backward.median = Seconds(1e-3 * random.integer(1, 18));
    }
    profile.others.push_back(other);
  }
  for (Device& device : cluster.devices) device.profile = random.integer(0, kinds - 1);
}

/// The least simulated step of every partition on every assignment of devices to workers.
double best_of_all(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  const test::Enumerated plans(profile, cluster, request);
  double best = std::numeric_limits<double>::infinity();
  plans.for_each([&](const Assignment& plan) { best = std::min(best, plans.best_placed_step(plan)); });
  return best;
}

}  // namespace

TEST_CASE("2 nodes of 2: replicas share a node, and reduce over its fast link") {
  // 8 GB/s inside, 1 GB/s between. Layer 0 on one node: (8 + 8/8)/2 = 4.5 ms per micro-batch; layers 1-3 on the
  // other: (8 + 6/8)/2. Scattered over both, the all-reduce of layer 0 takes 8 ms: (8 + 8)/2.
  const Profile profile = test::make_profile({{{8, 0, 8'000'000, 2'000'000, 0, 0, 0},
                                               {4, 0, 4'000'000, 1'000'000, 0, 0, 0},
                                               {2, 0, 1'000'000, 1'000'000, 0, 0, 0},
                                               {2, 0, 1'000'000, 0, 0, 0, 0}},
                                              {},
                                              {1}});
  const Cluster cluster = levels({2, 2}, {8e9, 1e9});
  PlanRequest request;
  request.mini_batch = 1;
  request.schedule = "pipedream";
  request.cuts = {1};
  request.replicas = {2, 2};
  request.window = WindowRule::wide;
  const Plan packed = planned(profile, cluster, request);
  CHECK(packed.predicted.step.count() == exactly(0.0045));
  CHECK(devices_of(packed) == std::vector<int>{0, 1, 2, 3});
  request.placement = Placement::scatter;
  const Plan scattered = planned(profile, cluster, request);
  CHECK(scattered.predicted.step.count() == exactly(0.008));
  CHECK(devices_of(scattered) == std::vector<int>{0, 2, 1, 3});
}

TEST_CASE("replicas of one node share its card, so a stage is spread over the nodes instead") {
  // 1 + 1 ms per layer, 6 MB each way between them, 2 nodes of 2, M = 4. Each stage on one node: four messages
  // of 6 ms leave through one card. One replica of each stage per node: 0.75 ms inside.
  const Profile profile = test::make_profile({{{1, 1, 0, 6'000'000, 0, 0, 0}, {1, 1, 0, 0, 0, 0, 0}}, {}, {1}});
  const Cluster cluster = levels({2, 2}, {8e9, 1e9});
  PlanRequest request = synchronous(4);
  request.replicas = {2, 2};
  request.placement = Placement::packed;
  CHECK(planned(profile, cluster, request).predicted.step.count() >= 4 * 0.006);
  request.placement = Placement::automatic;
  const Plan plan = planned(profile, cluster, request);
  // Pairs of workers, each two micro-batches: F, 0.75 ms, F, B, 0.75 ms, B, of which nothing crosses nodes.
  CHECK(plan.predicted.step.count() < 0.010);
  CHECK(devices_of(plan) == std::vector<int>{0, 2, 1, 3});
}

TEST_CASE("speeds 2,1,1: the fast device takes what two slow ones could not") {
  // Layers of 6,5,4,3,2 ms without traffic: 0-1 at speed 2 in 5.5, 2 in 4, 3-4 in 5; the work over all speeds
  // is 5.
  const Profile profile = test::make_profile({{{6, 0, 0, 0, 0, 0, 0},
                                               {5, 0, 0, 0, 0, 0, 0},
                                               {4, 0, 0, 0, 0, 0, 0},
                                               {3, 0, 0, 0, 0, 0, 0},
                                               {2, 0, 0, 0, 0, 0, 0}},
                                              {},
                                              {1}});
  Cluster cluster = test::make_cluster(3);
  cluster.devices[1].speed = 2;
  PlanRequest request;
  request.mini_batch = 1;
  request.schedule = "pipedream";
  request.replicas = {1, 1, 1};
  const Plan plan = planned(profile, cluster, request);
  CHECK(plan.predicted.step.count() == exactly(0.0055));
  CHECK(plan.certificate.lower_bound.count() == exactly(0.005));
}

TEST_CASE(
    "unequal memories: the stage that needs more gets the larger device, and the report the one that lacks") {
  // gpipe, two micro-batches, 5 % of 12 and 22 MB left free. Layers a and b: 3 * 2 MB of weights, gradients and
  // momentum, 2 * (1 + 4) MB kept; layer c: 2 * (4 + 1) MB, within 11.4: nothing is copied within a node.
  const Profile profile = test::make_profile({{{1, 1, 2'000'000, 2'000'000, 1'000'000, 0, 0},
                                               {1, 1, 0, 1'000'000, 4'000'000, 0, 0},
                                               {1, 1, 0, 0, 4'000'000, 0, 0}},
                                              {},
                                              {1}});
  Cluster cluster = test::make_cluster(2);
  cluster.devices[0].memory = Bytes(12'000'000);
  cluster.devices[1].memory = Bytes(22'000'000);
  PlanRequest request = synchronous(2);
  request.schedule = "gpipe";
  const Plan plan = planned(profile, cluster, request);
  CHECK(stages_text(plan) == "2|1");
  CHECK(devices_of(plan) == std::vector<int>{1, 0});
  CHECK(plan.predicted.workers[0].memory.peak == Bytes(16'000'000));
  CHECK(plan.predicted.workers[1].memory.peak == Bytes(10'000'000));

  // 7.6 MB do not even hold layer a, 6 + 2 * 1. On equal devices one micro-batch on each would need the least,
  // 6 + 9 MB. Under 1f1b the larger one does that alone.
  cluster.devices[0].memory = Bytes(8'000'000);
  const auto none = std::get<Infeasible>(make_plan(profile, cluster, request));
  CHECK(none.reason ==
        "does not fit: stage 0 of 1 (a..c) needs 15000000 bytes (14.3 MiB) on cpu:0 in the best attempt, "
        "7400000 "
        "more than the limit of 7600000 bytes (7.25 MiB); smallest feasible limit 15000000 bytes (14.3 MiB)");
  CHECK(none.short_by == Bytes(7'400'000));
  CHECK(none.remedy == "--schedule 1f1b, or --recompute auto");
}

TEST_CASE("two kinds of devices: a layer goes where it is faster, whatever the rest of the model takes there") {
  // Layers of 6 + 2 ms each; on device 0, another kind, 2 + 1 and 9 + 5. By the sums of 16 and 17 ms the kinds
  // are about equal, but layer b on device 0 takes 14 ms, and layer a 3.
  test::ProfileSpec spec{{{6, 2, 0, 0, 0, 0, 0}, {6, 2, 0, 0, 9, 0, 0}}, {}, {1}};
  Profile profile = test::make_profile(spec);
  spec.layers = {{2, 1, 0, 0, 0, 0, 0}, {9, 5, 0, 0, 7, 0, 0}};
  profile.others.push_back(test::make_profile(spec));
  Cluster cluster = test::make_cluster(2);
  PlanRequest request;
  request.mini_batch = 1;
  request.schedule = "pipedream";
  request.replicas = {1, 1};
  for (const int other : {0, 1}) {
    cluster.devices[0].profile = 1 - other, cluster.devices[1].profile = other;
    const Plan plan = planned(profile, cluster, request);
    CHECK(devices_of(plan) == std::vector<int>{other, 1 - other});
    CHECK(plan.predicted.step.count() == exactly(0.008));
    CHECK(plan.predicted.stages[0].forward.count() == exactly(0.002));
    CHECK(plan.predicted.stages[1].backward.count() == exactly(0.002));
  }
  // Of replicas each pass takes what its slowest does: F = max(12, 11), B = max(4, 6); a step of two
  // micro-batches is one on each. Both layers keep the larger 9 bytes.
  request = synchronous(2);
  request.replicas = {2};
  const Plan both = planned(profile, cluster, request);
  CHECK(both.predicted.step.count() == exactly(0.018));
  CHECK(both.predicted.stages[0].saved == Bytes(9));
}

TEST_CASE("95 of 100 plans are the best of all assignments, and no assignment beats the certificate") {
  Random random(310);
  int equal = 0, equal_of_kinds = 0;
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    Profile profile = random_profile(random, random.integer(2, 4));
    Cluster cluster = levels({2, 2}, {8e9, 1e9});
    if (round >= 100) draw_kinds(random, profile, cluster);
    if (round % 3 != 0) {
      for (Device& device : cluster.devices) device.speed = random.integer(1, 3);
    }
    if (round % 3 == 2) {
      for (Device& device : cluster.devices) device.memory = Bytes(random.integer(8, 60) * 1'000'000);
    }
    PlanRequest request = synchronous(random.integer(2, 4));
    request.window = WindowRule::published;  // the planner leaves it alone
    const double best = best_of_all(profile, cluster, request);
    const auto result = make_plan(profile, cluster, request);
    if (best == std::numeric_limits<double>::infinity()) {
      REQUIRE(std::holds_alternative<Infeasible>(result));
      continue;
    }
    REQUIRE(std::holds_alternative<Plan>(result));
    const Plan& plan = std::get<Plan>(result);
    REQUIRE(test::searched(profile, cluster, request).bound <= best * (1 + 1e-9));
    REQUIRE(plan.predicted.step.count() >= best * (1 - 1e-9));
    if (plan.predicted.step.count() <= best * (1 + 1e-9)) ++(round < 100 ? equal : equal_of_kinds);
  }
  CHECK(equal >= 95);
  CHECK(equal_of_kinds >= 95);
}

}  // namespace pp::plan::ordered_candidates_test

TEST_SUITE_END();

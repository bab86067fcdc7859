// Machines of thousands of devices: pipelines of equal replicas on whole nodes or equal shares of them.
#include <numeric>

#include "libplan/answer/make_plan.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

namespace large_test {

using namespace pp;
using namespace pp::plan;
using pp::plan::test::make_profile;

namespace {

/// 40 layers of 1 to 3 ms forward, twice that backward, 1 MB of weights and 100 kB between them.
Profile forty_layers() {
  pp::plan::test::ProfileSpec spec;
  for (int l = 0; l < 40; ++l) {
    const double forward = 1 + l * 7 % 5 / 2.0;
    spec.layers.push_back({forward, 2 * forward, 1'000'000, 100'000, 200'000});
  }
  return make_profile(spec);
}

/// Nodes of 8 devices, 100 GB/s inside, 10 GB/s between.
Cluster nodes(int count, std::int64_t memory = 0) {
  const std::vector<LevelSpec> levels{{8, BytesPerSecond(1e11)}, {count, BytesPerSecond(1e10)}};
  return nested_cluster(levels, DeviceKind::cpu, Seconds(5e-6), Bytes(memory));
}

PlanRequest request_of(int micro_batches) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(micro_batches);
  request.schedule = "1f1b";
  return request;
}

/// Where `stages` stages begin so that the largest has the least forward plus backward: a table over
/// (stages, layers).
std::vector<int> balanced_cuts(const Profile& profile, int stages) {
  const int layers = static_cast<int>(profile.layers.size());
  std::vector<double> sum(1, 0);
  for (const LayerProfile& layer : profile.layers)
    sum.push_back(sum.back() + (layer.points[0].forward.median + layer.points[0].backward.median).count());
  std::vector<std::vector<double>> least(at(stages + 1), std::vector<double>(at(layers + 1), 1e300));
  std::vector<std::vector<int>> begins(at(stages + 1), std::vector<int>(at(layers + 1), 0));
  least[0][0] = 0;
  for (int s = 1; s <= stages; ++s) {
    for (int end = s; end <= layers; ++end) {
      for (int begin = s - 1; begin < end; ++begin) {
        const double load = std::max(least[at(s - 1)][at(begin)], sum[at(end)] - sum[at(begin)]);
        if (load < least[at(s)][at(end)]) least[at(s)][at(end)] = load, begins[at(s)][at(end)] = begin;
      }
    }
  }
  std::vector<int> cuts;
  for (int s = stages, end = layers; s > 1; --s) cuts.insert(cuts.begin(), end = begins[at(s)][at(end)]);
  return cuts;
}

/// The fastest of all pipelines of equal replicas on so many nodes, each priced by itself.
double best_equal(const Profile& profile, int node_count, int micro_batches) {
  double best = 1e300;
  for (const int q : {1, 2, 4, 8, 16, 24, 32}) {
    for (int stages = 1; stages <= 40 && stages * q <= 8 * node_count && q <= micro_batches; ++stages) {
      PlanRequest request = request_of(micro_batches);
      request.cuts = balanced_cuts(profile, stages);
      request.replicas.assign(at(stages), q);
      const auto made = find_plan(profile, nodes((stages * q + 7) / 8), request);
      if (const Plan* plan = std::get_if<Plan>(&made)) best = std::min(best, plan->predicted.step.count());
    }
  }
  return best;
}

}  // namespace

TEST_SUITE("libplan/search/large") {
  TEST_CASE("on 1,024 devices no pipeline of equal replicas is faster than the plan") {
    const Profile profile = forty_layers();
    const Plan plan = std::get<Plan>(find_plan(profile, nodes(128), request_of(24)));
    CHECK(plan.predicted.step.count() <= best_equal(profile, 128, 24) * (1 + 1e-9));
  }

  TEST_CASE("the certificate says that equal replicas alone were searched, on a flat machine too") {
    const Profile profile = forty_layers();
    const auto searched = [&](int devices) {
      return std::get<Plan>(find_plan(profile, pp::plan::test::make_cluster(devices), request_of(24)))
          .certificate.search;
    };
    // 40 layers times 640^2 devices are more than 16 million.
    CHECK(searched(640).starts_with("searched pipelines of equal replicas over 1 layer order"));
    CHECK(searched(16).starts_with("exact over 1 layer order"));
  }

  TEST_CASE("stages stand on whole nodes or on equal shares of one") {
    // 3 MB of weights, gradients and state for each layer: 15 MB leave room for four in no stage.
    const Plan plan = std::get<Plan>(find_plan(forty_layers(), nodes(128, 15'000'000), request_of(64)));
    REQUIRE(plan.stages.size() >= 10);
    for (const Stage& stage : plan.stages) {
      const std::size_t replicas = stage.workers.size();
      CHECK((replicas % 8 == 0 || 8 % replicas == 0));
      CHECK(replicas == plan.stages.front().workers.size());
    }
  }

  TEST_CASE("a bound counts rings of two levels, which have fewer latencies than flat ones") {
    // One layer of 100 ms and 40 MB, the others as good as nothing, four samples. On two nodes of two, all
    // links alike: 25 ms a replica, and 4 ms + 1.5 * 4 ms of all-reduce; one flat ring takes 6 ms + 1.5 * 4 ms,
    // a tree 4 ms + 2 * 4 ms.
    pp::plan::test::ProfileSpec spec;
    spec.layers.assign(40, {1e-4, 1e-4, 0, 1000, 1000});
    spec.layers.front() = {40, 60, 40'000'000, 1000, 1000};
    const Profile profile = make_profile(spec);
    for (const int count : {2, 320}) {
      CAPTURE(count);
      const std::vector<LevelSpec> levels{{2, BytesPerSecond(1e10)}, {count, BytesPerSecond(1e10), 2}};
      const Cluster cluster = nested_cluster(levels, DeviceKind::cpu, Seconds(1e-3), {});
      PlanRequest request;
      request.mini_batch = 4;
      request.schedule = "1f1b";
      const Plan plan = std::get<Plan>(find_plan(profile, cluster, request));
      CHECK(plan.predicted.step.count() <= 0.1101);
      CHECK(plan.certificate.lower_bound <= plan.predicted.step);
    }
  }

  TEST_CASE("where replicas share the optimizer's state, more of them make room for a plan") {
    // 20 layers of 100 kB on 1,000 devices, 60 micro-batches: 30 or more replicas take two each, and no stage
    // is shorter than a layer. Weights and gradients of 200 kB, and a share of 10 times the weights: 33.3 kB
    // of 30, 20 kB of 50.
    pp::plan::test::ProfileSpec spec;
    spec.layers.assign(20, {1, 2, 100'000, 0, 0});
    PlanRequest request = request_of(60);
    request.shard = ShardChoice::optimizer;
    request.optimizer_state_ratio = 10;
    request.memory_limit = Bytes(225'000);
    const Plan plan =
        std::get<Plan>(find_plan(make_profile(spec), pp::plan::test::make_cluster(1000), request));
    CHECK(replicas_text(plan).starts_with("50-50-"));
  }

  TEST_CASE("2,048 nodes of eight have a plan") {
    PlanRequest request = request_of(64);
    const Plan plan = std::get<Plan>(find_plan(forty_layers(), nodes(2048), request));
    CHECK(plan.workers.size() <= 40 * 64);
    CHECK(plan.devices.size() == 16'384);
  }
}

}  // namespace large_test

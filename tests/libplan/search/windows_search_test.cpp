// What the planner makes of windows, against all partitions with all windows.
#include <cmath>
#include <functional>
#include <limits>

#include "libplan/answer/make_plan.h"
#include "libplan/plan/programs.h"
#include "libplan/search/improve/covering_windows.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/windows_search");

namespace pp::plan::windows_search_test {
namespace {

using test::make_cluster;
using test::Random;

/// Seconds per step, 1 % more for a synchronous plan that holds more than `win`; infinity: nothing fits, or the
/// windows lock each other.
double step_of(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  try {
    const auto result = make_plan(profile, cluster, request);
    const Plan& plan = std::get<Plan>(result);
    return plan.predicted.step.count() * (widened_from(plan).empty() ? 1 : 1.01);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    return std::numeric_limits<double>::infinity();
  }
}

/// Calls `visit` with every choice of windows from 1 to `most` for `stages` stages, 1 for the last.
void for_each_windows(int stages, int most, const std::function<void(const std::vector<int>&)>& visit) {
  std::vector<int> windows(at(stages), 1);
  while (true) {
    visit(windows);
    std::size_t s = 0;
    while (s + 1 < windows.size() && windows[s] == most) windows[s++] = 1;
    if (s + 1 >= windows.size()) return;
    ++windows[s];
  }
}

double best_of_all(const Profile& profile, const Cluster& cluster, PlanRequest request, int most) {
  SearchSpace space;
  space.layers = static_cast<int>(profile.layers.size());
  space.devices = static_cast<int>(cluster.devices.size());
  double best = std::numeric_limits<double>::infinity();
  request.window = WindowRule::explicit_list;
  test::for_each_partition(space, [&](const Partition& partition) {
    request.cuts = cuts_of(partition);
    request.replicas = replicas_of(partition);
    request.stages.reset();
    if (request.cuts.empty()) request.stages = 1;
    for_each_windows(static_cast<int>(partition.size()), most, [&](const std::vector<int>& windows) {
      request.windows = windows;
      best = std::min(best, step_of(profile, cluster, request));
    });
  });
  return best;
}

/// Layers of 0.5-10 + 1-20 ms, up to 3 MB of weights and 1 MB of output.
Profile random_profile(Random& random, int layers) {
  test::ProfileSpec spec;
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({random.integer(1, 20) * 0.5, random.integer(1, 20) * 1.0,
                           random.integer(0, 3) * 1'000'000, random.integer(0, 4) * 250'000, 0, 0, 0});
  }
  return test::make_profile(spec);
}

/// Two stages of one device, 1 + 1 s each, with `activation` bytes over 1000 B/s.
Finalist two_stages(std::int64_t activation) {
  Finalist finalist;
  finalist.partition = {{0, 1, 1}, {1, 2, 1}};
  finalist.schedule = &require_schedule("pipedream");
  finalist.micro_batches = 4;
  finalist.assignment.stage_layers = {{0}, {1}};
  finalist.assignment.stage_workers = {{0}, {1}};
  finalist.assignment.worker_devices = {0, 1};
  StageCosts costs;
  costs.forward = costs.backward = Seconds(1);
  finalist.prediction.stages = {costs, costs};
  finalist.prediction.edges = {{StageId{0}, StageId{1}, Bytes(activation), Bytes(activation)}};
  return finalist;
}

using Windows = std::vector<std::vector<int>>;

}  // namespace

TEST_CASE("a round trip longer than the windows of win wants wider ones") {
  const Cluster cluster = make_cluster(2, 0, 1000);
  // t = t' = 0.5: the round trip is 2 + 2 + 1 = 5 s at a period of 2 s: 3 in flight.
  CHECK(covering_windows(two_stages(500), cluster) == Windows{{3, 1}});
  // Nothing is sent: 4 s at 2 s, which win is.
  CHECK(covering_windows(two_stages(0), cluster).empty());
  // t = t' = 1.5: 7 s at 2 s, 4; as a stage of its own the link has 3 s, 2 turns: 1 + 1 + 2 as well.
  CHECK(covering_windows(two_stages(1500), cluster) == Windows{{4, 1}});
  // t = t' = 4: the link is the bottleneck, 4 s; 12 s at 4 s; 8 s are 2 turns of the link.
  CHECK(covering_windows(two_stages(4000), cluster) == Windows{{3, 1}, {4, 1}});
}

TEST_CASE("a synchronous stage has no more in flight than its micro-batches") {
  Finalist finalist = two_stages(4000);
  finalist.schedule = &require_schedule("1f1b");
  finalist.micro_batches = 3;
  CHECK(covering_windows(finalist, make_cluster(2, 0, 1000)) == Windows{{3, 1}});
}

TEST_CASE("windows without end are none") {
  Finalist finalist = two_stages(0);
  finalist.prediction.stages[0].forward = finalist.prediction.stages[1].forward = Seconds(1e-9);
  finalist.prediction.stages[0].backward = finalist.prediction.stages[1].backward = Seconds(1e-9);
  Cluster cluster = make_cluster(2, 0, 1000);
  cluster.levels.front().latency = Seconds(1);
  CHECK(covering_windows(finalist, cluster).empty());
}

TEST_CASE("the plan is the best of all partitions with all windows, wider ones where they gain 1 %") {
  Random random(5);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const bool synchronous = round % 2 == 0;
    PlanRequest request;
    request.schedule = synchronous ? "1f1b" : "pipedream";
    request.mini_batch = request.micro_batches.emplace(synchronous ? 6 : 1);
    const Profile profile = random_profile(random, random.integer(3, 5));
    const Cluster cluster =
        make_cluster(random.integer(2, 3), 0, 1e7 * std::exp2(random.integer(0, 6) + random.unit()));
    CHECK(step_of(profile, cluster, request) <= best_of_all(profile, cluster, request, 8) * (1 + 1e-9));
  }
}

}  // namespace pp::plan::windows_search_test

TEST_SUITE_END();

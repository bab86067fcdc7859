// What a plan pays for devices and nodes that are crowded with its model, and that bounds know no more of it.
#include <array>
#include <string>

#include "libplan/answer/make_plan.h"
#include "libplan/search/planner.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libplan/search/searched.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/crowding");

namespace pp::plan::crowding_test {
namespace {

using test::make_cluster;
using test::make_profile;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

PlanRequest request_of(const std::string& schedule) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(4);
  request.schedule = schedule;
  return request;
}

Plan planned(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  return std::get<Plan>(make_plan(profile, cluster, request));
}

}  // namespace

TEST_CASE("a device that holds the whole model pays for it, one that holds a part does not") {
  // Two layers of 1 and 2 ms and 1 MB: beside a whole model. In part 0.5 and 1 ms. Two devices were profiled.
  Profile profile = make_profile({{{1, 2, 1'000'000, 0, 0, 0, 0}, {1, 2, 1'000'000, 0, 0, 0, 0}}, {}, {1}});
  profile.device.devices_busy = 2;
  for (LayerProfile& layer : profile.layers)
    layer.points[0].in_part = without_spread(Seconds(0.5e-3), Seconds(1e-3), Seconds(0.5e-3), Seconds(0.5e-3));
  PlanRequest request = request_of("1f1b");
  request.cuts = {1};
  // K = 2, M = 4: (4 + 1) * 1.5 ms.
  CHECK(planned(profile, make_cluster(2), request).predicted.step.count() == exactly(0.0075));
  request.cuts.clear();
  request.max_stages = 1;
  request.replicas = {1};
  CHECK(planned(profile, make_cluster(2), request).predicted.step.count() == exactly(0.024));  // 4 * 6 ms
  // Both stages on each worker, as Chimera has them: the whole model again. Slots of F and B, (4, 4) of two
  // workers: all 4 micro-batches pass both stages on one of them.
  request = request_of("1f1b");
  request.cuts = {1};
  request.schedule = "chimera";
  request.all_reduce_overlap = 0;
  const Plan both = planned(profile, make_cluster(2, 0, 1e13), request);
  CHECK(both.predicted.stages[0].forward.count() == exactly(0.001));
}

TEST_CASE("a device alone takes what it takes alone, replicas what they take beside each other") {
  // Two layers of 1 and 2 ms and 1 MB beside a second model; in part 0.5 and 1 ms, alone 0.75 and 1.5 ms.
  Profile profile = make_profile({{{1, 2, 1'000'000, 0, 0, 0, 0}, {1, 2, 1'000'000, 0, 0, 0, 0}}, {}, {1}});
  profile.device.devices_busy = 2;
  for (LayerProfile& layer : profile.layers) {
    layer.points[0].in_part = without_spread(Seconds(0.5e-3), Seconds(1e-3), Seconds(0.5e-3), Seconds(0.5e-3));
    layer.points[0].alone = without_spread(Seconds(0.75e-3), Seconds(1.5e-3), Seconds(1e-3), Seconds(0.5e-3));
  }
  PlanRequest request = request_of("1f1b");
  request.max_stages = 1;
  request.replicas = {1};
  const auto forward_of = [&](const Cluster& cluster) {
    const Plan plan = planned(profile, cluster, request);
    return plan.predicted.stages[0].forward.count();
  };
  CHECK(forward_of(make_cluster(2)) == exactly(0.0015));
  request.replicas = {2};
  request.all_reduce_overlap = 0;
  Cluster cluster = make_cluster(2, 0, 1e13);
  CHECK(forward_of(cluster) == exactly(0.002));
  cluster.devices[1].node = "b";  // each node holds one model
  CHECK(forward_of(cluster) == exactly(0.0015));
}

TEST_CASE("a stage updates as one device does alone, replicas as those that update beside each other") {
  // Of 2 MB, 2 ms alone and 3 ms on both devices at once: 1 ns a byte, half as long again.
  Profile profile = make_profile({{{1, 2, 1'000'000, 0, 0, 0, 0}, {1, 2, 1'000'000, 0, 0, 0, 0}}, {}, {1}});
  profile.device.devices_busy = 2;
  const auto update = [](double time) { return TimeStat{Seconds(time), Seconds(time), Seconds(time), 0}; };
  profile.optimizers = {{"sgd", 1, update(3e-3), Bytes(2'000'000), {{Bytes(2'000'000), update(2e-3)}}}};
  PlanRequest request = request_of("1f1b");
  const auto update_of = [&](int stages, int replicas, const Cluster& cluster) {
    request.stages = stages;
    request.replicas.assign(at(stages), replicas);
    const Plan plan = planned(profile, cluster, request);
    return plan.predicted.stages[0].update.count();
  };
  CHECK(update_of(2, 1, make_cluster(2)) == exactly(0.001));  // one copy between them
  CHECK(update_of(1, 1, make_cluster(2)) == exactly(0.002));
  Cluster cluster = make_cluster(2, 0, 1e13);
  CHECK(update_of(1, 2, cluster) == exactly(0.003));
  cluster.devices[1].node = "b";  // each has its memory to itself
  CHECK(update_of(1, 2, cluster) == exactly(0.002));
}

TEST_CASE("a bound is never above what is simulated, however conditions differ") {
  test::Random random(11);
  int plans = 0;
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    test::ProfileSpec spec;
    for (int l = 0, layers = random.integer(2, 6); l < layers; ++l) {
      spec.layers.push_back({random.integer(1, 20) * 0.5, random.integer(1, 20) * 1.0,
                             random.integer(0, 3) * 1'000'000, random.integer(0, 4) * 250'000, 0, 0, 0});
    }
    spec.sizes = {1};
    Profile profile = make_profile(spec);
    profile.device.devices_busy = random.integer(2, 3);
    for (LayerProfile& layer : profile.layers) {
      LayerPoint& point = layer.points[0];
      const auto times = [&] {
        const double factor = random.integer(5, 12) * 0.1;
        const Seconds backward = point.backward.median * factor;
        return without_spread(point.forward.median * factor, backward, backward / 2, backward / 2);
      };
      point.in_part = times();
      if (random.integer(0, 3) > 0) point.alone = times();
    }
    const auto schedules = std::to_array<const char*>({"auto", "gpipe", "1f1b", "zb-h1", "chimera"});
    PlanRequest request = request_of(schedules[at(round) % schedules.size()]);
    Cluster cluster =
        make_cluster(request.schedule == "chimera" ? 2 * random.integer(1, 2) : random.integer(1, 4));
    for (Device& device : cluster.devices) device.node = random.integer(0, 1) == 0 ? "a" : "b";
    const SearchOutcome found = test::searched(profile, cluster, request);
    if (found.ranked.empty()) continue;  // chimera on more devices than layers
    ++plans;
    CHECK(found.bound <= test::step_of(found) * (1 + 1e-9));
  }
  CHECK(plans > 50);
}

}  // namespace pp::plan::crowding_test

TEST_SUITE_END();

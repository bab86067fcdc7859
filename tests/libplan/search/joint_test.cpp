#include "libplan/answer/make_plan.h"
#include "libplan/cost/links.h"
#include "libplan/search/best_first.h"

#include "libplan/report/compare_strategies.h"
#include "libplan/request/machine.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/test_data.h"

#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/joint");

namespace pp::plan::joint_test {
namespace {

using test::make_cluster;
using test::Random;

constexpr double kRounding = 1e-9;

PlanRequest request_of(int mini_batch, int micro_batches, const std::string& schedule = "auto") {
  PlanRequest request;
  request.mini_batch = mini_batch;
  request.micro_batches = micro_batches;
  request.schedule = schedule;
  return request;
}

/// With the split of the backward measured where `split`, so that every schedule competes.
Profile random_profile(Random& random, int layers, bool split) {
  test::ProfileSpec spec;
  spec.sizes = {1, 2, 4, 8};
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({random.integer(1, 20) * 0.5, random.integer(1, 20) * 1.0,
                           random.integer(0, 3) * 1'000'000, random.integer(0, 4) * 250'000,
                           random.integer(0, 500'000), 0, random.integer(0, 100'000)});
  }
  Profile profile = test::make_profile(spec);
  for (LayerProfile& layer : profile.layers) {
    for (LayerPoint& point : layer.points) {
      if (!split) continue;
      point.input_gradient = point.weight_gradient = point.backward;
      point.input_gradient->median = point.weight_gradient->median = point.backward.median / 2;
    }
  }
  return profile;
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Seconds per step; infinity: nothing fits, or the schedule refuses the machine.
double step_of(const Profile& profile, const Cluster& cluster, const PlanRequest& request) try {
  const auto result = make_plan(profile, cluster, request);
  const Plan* plan = std::get_if<Plan>(&result);
  return plan != nullptr ? plan->predicted.step.count() : kInfinity;
} catch (const Error& error) {
  if (error.kind() != ErrorKind::usage) throw;
  return kInfinity;
}

Plan planned(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  auto result = make_plan(profile, cluster, request);
  if (const auto* none = std::get_if<Infeasible>(&result)) FAIL(none->reason);
  return std::get<Plan>(std::move(result));
}

void check_not_slower_than_baselines(const Profile& profile, const Cluster& cluster,
                                     const PlanRequest& request) {
  const std::vector<Comparison> rows = compare_strategies(profile, cluster, request);
  const Plan* ours = std::get_if<Plan>(&rows.front().result);
  for (const Comparison& row : rows) {
    CAPTURE(std::string(name_of(row.strategy)));
    const Plan* plan = std::get_if<Plan>(&row.result);
    if (plan == nullptr) continue;
    REQUIRE(ours != nullptr);
    CHECK(ours->predicted.step.count() <= plan->predicted.step.count() * (1 + kRounding));
  }
}

}  // namespace

TEST_CASE("of many wide plans the best by estimate are simulated, for some millions of operations") {
  // Data parallelism at 800 to 1000 workers is within 25 % of the best. Each is simulated for 40 operations per
  // worker, and a link counts a fiftieth: 60,000 at 1000 workers, of which 4 million are 66.
  const Profile profile =
      test::make_profile({std::vector<test::LayerRow>(1, {1, 2, 10, 10, 10, 0, 0}), {}, {1}});
  PlanRequest request;
  request.mini_batch = 1;
  request.schedule = "pipedream";
  const SearchOutcome outcome = search_plans(profile, make_cluster(1000), make_graph(profile), request);
  REQUIRE(!outcome.ranked.empty());
  CHECK(replicas_text(outcome.ranked.front().partition) == "1000");
  CHECK(outcome.candidates == 201);
  CHECK(outcome.ranked.size() >= 60);
  CHECK(outcome.ranked.size() < 120);
}

TEST_CASE("auto takes schedules that split the backward where its parts are measured, and says when not") {
  // Of one worker per stage, without replicas: gpipe, 1f1b and chimera; with the split zb-h1, zb-h2 and
  // auto-zb.
  PlanRequest request = request_of(2, 2);
  request.stages = 2;
  request.replicas = {1, 1};
  Random random(1);
  const std::string unsplit =
      planned(random_profile(random, 4, false), make_cluster(2), request).certificate.search;
  CAPTURE(unsplit);
  CHECK(unsplit.find(" and 2 schedules, not exactly over 1 schedule that places its stages;") !=
        std::string::npos);
  CHECK(unsplit.ends_with(
      "; left out: zb-h1, zb-h2, auto-zb, the profile only estimates how the backward splits"));
  const std::string split =
      planned(random_profile(random, 4, true), make_cluster(2), request).certificate.search;
  CAPTURE(split);
  CHECK(split.find(" and 2 schedules, not exactly over 4 schedules that place their stages;") !=
        std::string::npos);
  CHECK(split.find("left out") == std::string::npos);
}

TEST_CASE("a list of schedules is planned like each of them, the best wins") {
  Random random(2);
  for (int round = 0; round < 10; ++round) {
    const Profile profile = random_profile(random, 5, true);
    const Cluster cluster = make_cluster(3);
    double best = kInfinity;
    for (const std::string name : {"gpipe", "1f1b", "zb-h1"})
      best = std::min(best, step_of(profile, cluster, request_of(4, 4, name)));
    CHECK(step_of(profile, cluster, request_of(4, 4, "gpipe,1f1b,zb-h1")) <= best * (1 + kRounding));
    CHECK(step_of(profile, cluster, request_of(4, 4)) <= best * (1 + kRounding));
  }
  CHECK_THROWS_AS(
      make_plan(random_profile(random, 3, false), make_cluster(2), request_of(4, 4, "1f1b,nothing")), Error);
}

TEST_CASE("never slower than a baseline: random profiles, with and without a memory limit") {
  Random random(3);
  for (int round = 0; round < 25; ++round) {
    CAPTURE(round);
    const Profile profile = random_profile(random, random.integer(2, 6), round % 3 == 0);
    PlanRequest request = request_of(4, random.integer(1, 4));
    if (round % 2 == 1) request.memory_limit = Bytes(random.integer(6'000'000, 40'000'000));
    check_not_slower_than_baselines(profile, make_cluster(random.integer(1, 5)), request);
  }
}

TEST_CASE("never slower than a baseline on the peers' published profiles") {
  for (const char* name : {"alexnet", "vgg16", "gnmt"}) {
    CAPTURE(name);
    const Profile profile = pp::test::peer_profile(name);
    check_not_slower_than_baselines(
        profile, flat_cluster(4, profile.device.kind, BytesPerSecond(1e9), Seconds(0), Bytes(0)),
        request_of(8, 8));
  }
}

TEST_CASE("more devices, more memory, twice the bandwidth: never slower") {
  Random random(4);
  for (int round = 0; round < 24; ++round) {
    CAPTURE(round);
    const std::string schedule =
        std::vector<std::string>{"auto", "1f1b", "gpipe", "zb-h1", "interleaved", "zb-v"}[at(round % 6)];
    CAPTURE(schedule);
    const Profile profile = random_profile(random, random.integer(4, 7), true);
    const PlanRequest request = request_of(8, 4, schedule);
    double before = kInfinity;
    for (int devices = 1; devices <= 6; ++devices) {
      CAPTURE(devices);
      const double step = step_of(profile, make_cluster(devices), request);
      CHECK(step <= before * (1 + kRounding));
      before = step;
    }
    for (const double bandwidth : {0.25e9, 0.5e9, 1e9, 2e9}) {
      CAPTURE(bandwidth);
      const double step = step_of(profile, make_cluster(4, 0, bandwidth), request);
      if (bandwidth > 0.25e9) CHECK(step <= before * (1 + kRounding));
      before = step;
    }
    PlanRequest limited = request;
    before = kInfinity;
    for (const std::int64_t limit : {8'000'000, 10'000'000, 13'000'000, 20'000'000, 40'000'000}) {
      CAPTURE(limit);
      limited.memory_limit = Bytes(limit);
      const double step = step_of(profile, make_cluster(4), limited);
      CHECK(step <= before * (1 + kRounding));
      before = step;
    }
  }
}

TEST_CASE("a free window is wider than win where that hides transfers and fits") {
  // tests/data/plan/example_c.json with 2-1 replicas: 55 ms with K = (2,1), 50 ms with (3,1).
  PlanRequest request = request_of(6, 6, "1f1b");
  request.cuts = {3};
  request.replicas = {2, 1};
  const Plan free = planned(test::example_c(), make_cluster(3), request);
  CHECK(free.predicted.makespan.count() == doctest::Approx(0.050));
  CHECK(free.context.at("window") == "3,1");
  request.window = WindowRule::win;
  CHECK(planned(test::example_c(), make_cluster(3), request).predicted.makespan.count() ==
        doctest::Approx(0.055));
}

TEST_CASE("asynchronous schedules compete only when allowed") {
  // Two layers of 3 ms and one micro-batch per update: pipedream takes 3 ms on two devices, a flushed step 6.
  const Profile profile = test::make_profile({std::vector<test::LayerRow>(2, {1, 2, 0, 0, 0, 0, 0}), {}, {1}});
  PlanRequest request;
  request.mini_batch = 1;
  CHECK(planned(profile, make_cluster(2), request).predicted.step.count() == doctest::Approx(0.006));
  request.allow_async = true;
  const Plan plan = planned(profile, make_cluster(2), request);
  CHECK(plan.schedule.name == "pipedream");
  CHECK(plan.predicted.step.count() == doctest::Approx(0.003));
  request.weight_policy = WeightPolicy::flush;
  CHECK(planned(profile, make_cluster(2), request).predicted.step.count() == doctest::Approx(0.006));
}

TEST_CASE("the first devices keep the levels that join them, one more joins the outermost") {
  Cluster cluster = make_cluster(8);
  Level rack = cluster.levels.front();
  cluster.levels.front().devices = 4;
  rack.devices = 8;
  cluster.levels.push_back(rack);
  const Cluster six = first_devices(cluster, 6);
  CHECK(six.devices.size() == 6);
  REQUIRE(six.levels.size() == 2);
  CHECK(six.levels[1].devices == 8);
  const Cluster three = first_devices(cluster, 3);
  REQUIRE(three.levels.size() == 1);
  CHECK(three.levels[0].devices == 4);
  const Cluster nine = with_one_more_device(cluster);
  CHECK(nine.devices.size() == 9);
  CHECK(nine.levels[1].devices == 9);
  CHECK(number(nine.devices.back().id) == number(cluster.devices.back().id) + 1);
}

TEST_CASE(
    "an all-reduce takes as long among the first devices of a machine as among the same of the whole one") {
  Cluster cluster = make_cluster(4);
  Level rack = cluster.levels.front();
  rack.devices = 16;
  cluster.levels.push_back(rack);
  for (Level& level : cluster.levels)
    level.all_reduce = MeasuredAllReduce{BytesPerSecond(1e9), Seconds(1e-3), 0, {}};
  const std::vector<int> two{0, 1}, three{0, 1, 2};
  for (const auto& devices : {two, three}) {
    const Cluster part = first_devices(cluster, static_cast<int>(devices.size()));
    CHECK(all_reduce_time(part, devices, Bytes(1'000'000)) ==
          all_reduce_time(cluster, devices, Bytes(1'000'000)));
  }
  // Levels that would hold more devices than are listed: the bound is below the step.
  cluster.devices.resize(3);
  const Profile profile =
      test::make_profile({std::vector<test::LayerRow>(4, {1, 2, 8'000'000, 1000, 1000, 0, 0}), {}, {1}});
  PlanRequest request;
  request.mini_batch = 8;
  for (const char* schedule : {"data-parallel", "gpipe", "1f1b"}) {
    request.schedule = schedule;
    const Plan plan = planned(profile, cluster, request);
    CHECK(plan.certificate.lower_bound <= plan.predicted.step);
  }
}

TEST_CASE("a schedule that places its stages and does not fit: by how much, and a change that was planned") {
  Random random(6);
  int tried = 0;
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    const Profile profile = random_profile(random, 6, true);
    PlanRequest request = request_of(8, 4, round % 2 == 0 ? "zb-h1" : "chimera");
    request.memory_limit = Bytes(random.integer(4'000'000, 9'000'000));
    const auto result = make_plan(profile, make_cluster(4), request);
    const Infeasible* none = std::get_if<Infeasible>(&result);
    if (none == nullptr || none->reason.find("schedule") == std::string::npos) continue;
    ++tried;
    CHECK(none->reason.find("does not fit: schedule " + request.schedule + " needs ") == 0);
    CHECK_FALSE(none->remedy.empty());
    REQUIRE(none->smallest_limit);
    request.memory_limit = none->smallest_limit;
    CHECK(std::holds_alternative<Plan>(make_plan(profile, make_cluster(4), request)));
    request.memory_limit = *none->smallest_limit - Bytes(1);
    CHECK(std::holds_alternative<Infeasible>(make_plan(profile, make_cluster(4), request)));
  }
  CHECK(tried > 0);
}

}  // namespace pp::plan::joint_test

TEST_SUITE_END();

#include "libplan/answer/make_plan.h"
#include "libplan/price/predict.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>

#include "libplan/plan/plan.h"
#include "libplan/report/throughput.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/libplan/search/turns.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/planner");

namespace pp::plan::planner_test {
namespace {

using test::example_c;
using test::make_cluster;
using test::make_profile;
using test::Random;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

PlanRequest request_of(int mini_batch, int micro_batches) {
  PlanRequest request;
  request.mini_batch = mini_batch;
  request.micro_batches = micro_batches;
  return request;
}

Plan planned(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  auto result = make_plan(profile, cluster, request);
  if (const auto* none = std::get_if<Infeasible>(&result)) FAIL(none->reason);
  return std::get<Plan>(std::move(result));
}

std::string bytes_of(const Plan& plan) { return dump_json(to_json(plan)); }

/// A chain of equal layers of 1 ms forward and 2 ms backward, without weights or tensors.
Profile even_chain(int layers, std::vector<std::int64_t> sizes = {1}) {
  return make_profile({std::vector<test::LayerRow>(at(layers), {1, 2, 0, 0, 0, 0, 0}), {}, std::move(sizes)});
}

Profile random_profile(Random& random, int layers) {
  test::ProfileSpec spec;
  spec.sizes = {1, 2, 4, 8};
  for (int l = 0; l < layers; ++l) {
    const int saved = random.integer(0, 500'000);
    spec.layers.push_back({random.integer(1, 20) * 0.5, random.integer(1, 20) * 1.0,
                           random.integer(0, 3) * 1'000'000, random.integer(0, 4) * 250'000, saved,
                           random.integer(0, saved), random.integer(0, 100'000)});
  }
  if (random.integer(0, 1) == 0) {
    for (int l = 1; l < layers; ++l) {
      spec.edges.emplace_back(l - 1, l);
      if (l > 2 && random.integer(0, 2) == 0) spec.edges.emplace_back(random.integer(0, l - 2), l);
    }
  }
  return make_profile(spec);
}

}  // namespace

TEST_CASE(
    "replicas that share no divisor are planned over a stretch of their round, or refused by its length") {
  // The largest load is max(3/13, 5.1/11, 5.2/9, 3.8/7, 3.9/4) ms. Whole rounds of 36,036 micro-batches gave
  // 0.975375 ms: stage 4 also reduces 1 MB over four replicas, 1.5 us in four micro-batches.
  const Plan plan = test::many_turns({13, 11, 9, 7, 4});
  CHECK(plan.predicted.step.count() >= 0.975375e-3 * (1 - 1e-9));
  CHECK(plan.predicted.step.count() <= 0.975375e-3 * (1 + 13.0 / 5148));
  CHECK(2 * 5 * steady_updates(plan) <= 200'000);  // operations that are simulated
  // 31 * 29 * 27 * 25 * 16 = 9,709,200.
  CHECK_THROWS_WITH(test::many_turns({31, 29, 27, 25, 16}),
                    "schedule pipedream: replicas 31-29-27-25-16 take turns that meet after more than 2000000 "
                    "micro-batches, the limit; give the stages replicas with a smaller common multiple");
}

TEST_CASE("Example C: simulated 56 ms as data parallelism, 55 and 50 ms as a 2-1 pipeline") {
  const Cluster cluster = make_cluster(3);
  const auto plan_of = [&](const std::string& schedule, std::vector<int> replicas, WindowRule window) {
    PlanRequest request = request_of(6, 6);
    request.schedule = schedule;
    if (replicas.size() > 1) request.cuts = {3};
    request.replicas = std::move(replicas);
    request.window = window;
    return planned(example_c(), cluster, request);
  };
  CHECK(plan_of("1f1b", {3}, WindowRule::win).predicted.makespan.count() == exactly(0.056));
  CHECK(plan_of("1f1b", {2, 1}, WindowRule::win).predicted.makespan.count() == exactly(0.055));
  CHECK(plan_of("1f1b", {2, 1}, WindowRule::wide).predicted.makespan.count() == exactly(0.050));

  // gpipe: six messages of 3 ms share the receiver's port from 5 ms on, so F1.5 ends at 5 + 18 + 1 = 24; the
  // gradients leave one by one, the last but four at 32; that replica runs three backwards of 10 ms and the
  // all-reduce of 3: 65.
  const Plan gpipe = plan_of("gpipe", {2, 1}, WindowRule::win);
  CHECK(gpipe.predicted.makespan.count() == exactly(0.065));
  // The document's 60 takes the 3 ms as pure latency: F1.5 ends at 15 + 3 + 2 = 20, B1.1 at 24, then 27 + 30
  // + 3.
  SimulationInput input = simulation_input(gpipe);
  for (LinkLevel& level : input.links) level.link = {BytesPerSecond(0), Seconds(0.003)};
  CHECK(simulate(input).makespan.count() == exactly(0.060));
}

TEST_CASE("the plan is the fastest of all simulated, certified, with the runners-up explained") {
  const Plan plan = planned(example_c(), make_cluster(3), request_of(6, 6));
  CHECK(plan.certificate.objective == plan.predicted.step);
  CHECK(plan.certificate.gap == exactly(plan.certificate.objective / plan.certificate.lower_bound - 1));
  REQUIRE_FALSE(plan.alternatives.empty());
  for (const Alternative& other : plan.alternatives) {
    CHECK(other.step >= plan.predicted.step);
    CHECK_FALSE(other.why_not.empty());
  }
  CHECK(
      std::is_sorted(plan.alternatives.begin(), plan.alternatives.end(),
                     [](const Alternative& a, const Alternative& b) { return a.step < b.step * (1 - 1e-10); }));
  CHECK(predict(plan, example_c(), make_cluster(3)) == plan.predicted);
  CHECK(simulate(simulation_input(plan)).makespan == plan.predicted.makespan);
  check_plan(plan);
}

TEST_CASE("equal layers without traffic: as many replicas as devices, proven optimal") {
  // 4 layers of 3 ms, M = 8, 4 devices: data parallelism runs 2 micro-batches of 12 ms, 24 ms = 8*12/4.
  const Plan plan = planned(even_chain(4), make_cluster(4), request_of(8, 8));
  CHECK(plan.predicted.step.count() == exactly(0.024));
  CHECK(replicas_text(plan) == "4");
  CHECK(plan.certificate.gap == doctest::Approx(0).epsilon(1e-12));
  CHECK(plan.training.micro_batches == 8);
}

TEST_CASE("the first micro-batch of a step is priced as such, and never below the others") {
  Profile profile = even_chain(2);
  for (LayerProfile& layer : profile.layers)
    layer.points[0].first = without_spread(Seconds(1.25e-3), Seconds(1.5e-3), {}, {});  // of 1 and 2 ms
  PlanRequest request = request_of(4, 4);
  request.max_stages = 1;
  request.replicas = {1};
  const Plan plan = planned(profile, make_cluster(1), request);
  CHECK(plan.predicted.step.count() == exactly(0.0245));  // 4 * 6 ms, and twice 0.25 ms; the backward stays
  REQUIRE(plan.predicted.stages[0].first.has_value());
  CHECK(plan.predicted.stages[0].first->backward == plan.predicted.stages[0].backward);
  const Plan again = plan_from_json(to_json(plan));
  CHECK(again.predicted.stages[0].first == plan.predicted.stages[0].first);
  // Most of four operations are no first ones; of one it is.
  CHECK(promised_time(plan, plan.predicted, OpKind::forward, StageId{0}).count() == exactly(0.002));
  request = request_of(1, 1);
  request.max_stages = 1;
  request.replicas = {1};
  const Plan single = planned(profile, make_cluster(1), request);
  CHECK(promised_time(single, single.predicted, OpKind::forward, StageId{0}).count() == exactly(0.0025));
}

TEST_CASE("constraints: stage count, cuts and replicas are kept") {
  const Profile profile = even_chain(6);
  PlanRequest request = request_of(8, 8);
  request.stages = 3;
  const Plan three = planned(profile, make_cluster(3), request);
  CHECK(stages_text(three) == "2|2|2");
  // K = 3 stages of 6 ms: (M + K - 1) * 6 = 60 ms.
  CHECK(three.predicted.makespan.count() == exactly(0.060));
  CHECK(three.schedule.name == "1f1b");  // as fast as gpipe, with fewer micro-batches in flight

  request = request_of(8, 8);
  request.cuts = {1, 5};
  CHECK(stages_text(planned(profile, make_cluster(4), request)) == "1|4|1");
  request.replicas = {1, 2, 1};
  CHECK(replicas_text(planned(profile, make_cluster(4), request)) == "1-2-1");
  request = request_of(8, 8);
  request.max_stages = 1;
  CHECK(planned(profile, make_cluster(4), request).stages.size() == 1);
  request.max_stages = std::numeric_limits<int>::max();  // more than there are layers: no limit
  const Plan any = planned(profile, make_cluster(4), request);
  CHECK(any.predicted.step == planned(profile, make_cluster(4), request_of(8, 8)).predicted.step);
}

TEST_CASE("micro-batch count auto: every profiled size that divides is tried") {
  // Times are proportional to the size, so only the fill counts: more micro-batches are better for a pipeline.
  PlanRequest request;
  request.mini_batch = 12;
  request.schedule = "1f1b";
  request.stages = 2;
  request.replicas = {1, 1};
  const Plan plan = planned(even_chain(4, {1, 2, 4, 8}), make_cluster(2), request);
  CHECK(plan.training.micro_batches == 12);
  // (12 + 1) * 6 ms.
  CHECK(plan.predicted.makespan.count() == exactly(0.078));
  CHECK(plan.certificate.search.find("3 micro-batch counts") != std::string::npos);  // 1, 2 and 4 divide 12
}

TEST_CASE("unequal micro-batches are priced at their own size") {
  // 5 samples in 2 micro-batches of 3 and 2: one stage runs 5 * 3 ms.
  PlanRequest request = request_of(5, 2);
  const Plan plan = planned(even_chain(1, {1, 2, 3}), make_cluster(1), request);
  CHECK(plan.predicted.makespan.count() == exactly(0.015));
  CHECK(plan.predicted.micro_batch_scale.size() == 2);
}

TEST_CASE("asynchronous plans rank by their period, and stash one version per micro-batch in flight") {
  PlanRequest request;
  request.mini_batch = 1;
  request.schedule = "pipedream";
  request.stages = 2;
  request.replicas = {1, 1};
  const Profile profile = make_profile({{{1, 2, 1000, 0, 0, 0, 0}, {1, 2, 1000, 0, 0, 0, 0}}, {}, {1}});
  const Plan plan = planned(profile, make_cluster(2), request);
  CHECK(plan.predicted.step.count() == exactly(0.003));
  CHECK(plan.predicted.makespan.count() == exactly(0.006));
  CHECK(plan.schedule.weight_policy == WeightPolicy::stash);
  CHECK(plan.training.micro_batches == 1);
  REQUIRE(plan.workers[0].program.stream.has_value());
  // Windows 2 and 1: the first stage keeps one older version.
  CHECK(plan.predicted.workers[0].memory.versions == Bytes(1000));
  CHECK(plan.predicted.workers[1].memory.versions == Bytes(0));
  CHECK(plan.predicted.bubble_fraction < 0.05);
  CHECK(plan.certificate.gap == doctest::Approx(0).epsilon(1e-9));
  check_plan(plan);
}

TEST_CASE("the default window reaches the ideal period of 1-4-1, the published one does not") {
  // F+B = 3r with F:B = 1:2 and no link cost; ideal period 3, which counts no waiting for all-reduces.
  const Profile profile =
      make_profile({{{1, 2, 0, 0, 0, 0, 0}, {4, 8, 0, 0, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}}, {}, {1}});
  const auto period = [&](WindowRule window) {
    PlanRequest request;
    request.mini_batch = 1;
    request.schedule = "pipedream";
    request.cuts = {1, 2};
    request.replicas = {1, 4, 1};
    request.window = window;
    SimulationInput input = simulation_input(planned(profile, make_cluster(6), request), 240);
    input.all_reduce = AllReduceMode::free;
    return steady_period(input).count();
  };
  CHECK(period(WindowRule::win) == exactly(0.003));
  CHECK(period(WindowRule::published) == exactly(0.0075));
}

TEST_CASE("a stream with a wide window is as slow as its busiest stage") {
  // 6 ms and 3 ms of work; 30 micro-batches of fill are longer than 20 turns of the two stages.
  const Profile profile = make_profile({{{2, 4, 0, 0, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}}, {}, {1}});
  PlanRequest request;
  request.mini_batch = 1;
  request.schedule = "pipedream";
  request.cuts = {1};
  request.window = WindowRule::explicit_list;
  request.windows = {30, 1};
  const Plan plan = planned(profile, make_cluster(2), request);
  CHECK(plan.predicted.step.count() == exactly(0.006));
  CHECK(step_parts(plan).compute.count() == exactly(0.006));
  CHECK(step_parts(plan).bubble.count() == 0);
}

TEST_CASE("every alternative differs from the others in more than its windows") {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(8);
  request.schedule = "1f1b";
  request.top = 30;
  const Plan plan = planned(test::example_c(), make_cluster(3), request);
  std::set<std::tuple<std::string, std::string>> seen;
  for (const Alternative& other : plan.alternatives) CHECK(seen.emplace(other.stages, other.replicas).second);
  CHECK(seen.size() >= 5);
}

TEST_CASE("any number of threads gives the same bytes") {
  Random random(16);
  const Profile profile = random_profile(random, 9);
  for (const char* schedule : {"auto", "zb-h1", "auto-zb", "pipedream"}) {
    CAPTURE(schedule);
    const bool asynchronous = std::string_view(schedule) == "pipedream";
    PlanRequest request = asynchronous ? request_of(4, 1) : request_of(8, 8);
    request.schedule = schedule;
    const std::string alone = bytes_of(planned(profile, make_cluster(3), request));
    for (const int threads : {2, 7}) {
      request.threads = threads;
      CHECK(bytes_of(planned(profile, make_cluster(3), request)) == alone);
    }
  }
}

TEST_CASE("the same request gives the same bytes, and re-reading a plan changes nothing") {
  Random random(5);
  for (int round = 0; round < 10; ++round) {
    const Profile profile = random_profile(random, 8);
    const Plan plan = planned(profile, make_cluster(4), request_of(8, 4));
    CHECK(bytes_of(plan) == bytes_of(planned(profile, make_cluster(4), request_of(8, 4))));
    CHECK(parse_plan(bytes_of(plan)) == plan);
    CHECK(predict(parse_plan(bytes_of(plan)), profile, cluster_of(plan)) == plan.predicted);
  }
}

TEST_CASE("a bound is never above what is simulated, and no simulated memory above the formula's") {
  Random random(6);
  for (int round = 0; round < 150; ++round) {
    CAPTURE(round);
    const Profile profile = random_profile(random, random.integer(1, 7));
    const int devices = random.integer(1, 5);
    PlanRequest request = request_of(8, random.integer(1, 8));
    request.schedule = std::vector<std::string>{"auto", "gpipe", "1f1b", "pipedream"}[at(round % 4)];
    if (request.schedule == "pipedream")
      request = [] {
        PlanRequest r;
        r.mini_batch = 1;
        r.schedule = "pipedream";
        return r;
      }();
    request.memory_limit = Bytes(random.integer(2'000'000, 40'000'000));
    const auto result = make_plan(profile, make_cluster(devices), request);
    if (const auto* none = std::get_if<Infeasible>(&result)) {
      // The limit it names is enough, and one byte less is not.
      REQUIRE(none->smallest_limit.has_value());
      REQUIRE(*none->smallest_limit > *request.memory_limit);
      request.memory_limit = none->smallest_limit;
      REQUIRE(std::holds_alternative<Plan>(make_plan(profile, make_cluster(devices), request)));
      request.memory_limit = *none->smallest_limit - Bytes(1);
      REQUIRE(std::holds_alternative<Infeasible>(make_plan(profile, make_cluster(devices), request)));
      continue;
    }
    const Plan& plan = std::get<Plan>(result);
    check_plan(plan);
    for (const WorkerPrediction& worker : plan.predicted.workers)
      REQUIRE(worker.memory.peak <= *request.memory_limit);
  }
}

TEST_CASE("more devices, memory or bandwidth never make the plan slower") {
  Random random(8);
  for (int round = 0; round < 25; ++round) {
    CAPTURE(round);
    const Profile profile = random_profile(random, 6);
    const PlanRequest request = request_of(8, 4);
    double before = 1e9;
    for (int devices = 1; devices <= 6; ++devices) {
      CAPTURE(devices);
      const double step = planned(profile, make_cluster(devices), request).predicted.step.count();
      CHECK(step <= before * (1 + 1e-10));
      before = step;
    }
    CHECK(planned(profile, make_cluster(6, 0, 2e9), request).predicted.step.count() <= before * (1 + 1e-10));
    PlanRequest limited = request;
    for (const std::int64_t limit : {40'000'000, 60'000'000, 80'000'000}) {
      limited.memory_limit = Bytes(limit);
      CHECK(planned(profile, make_cluster(6), limited).predicted.step.count() >= before * (1 - 1e-10));
    }
  }
}

TEST_CASE("a branching model: the four layers of the diamond on four devices take 10 ms") {
  for (const bool swapped : {false, true}) {
    std::vector<std::pair<int, int>> edges{{0, 1}, {0, 2}, {1, 3}, {2, 3}};
    if (swapped) edges = {{0, 2}, {0, 1}, {2, 3}, {1, 3}};
    const Profile profile = make_profile(
        {{{7, 0, 0, 0, 0, 0, 0}, {3, 0, 0, 0, 0, 0, 0}, {10, 0, 0, 0, 0, 0, 0}, {4, 0, 0, 0, 0, 0, 0}},
         edges,
         {1}});
    PlanRequest request;
    request.mini_batch = 1;
    request.schedule = "pipedream";
    request.stages = 4;
    CHECK(planned(profile, make_cluster(4), request).predicted.step.count() == exactly(0.010));
  }
}

TEST_CASE("a skip tensor goes straight to its reader: its bytes are on one link only") {
  // 0 -> 1 -> 2 and 0 -> 2, three stages; 4 MB each.
  const Profile profile =
      make_profile({{{1, 2, 0, 4'000'000, 0, 0, 0}, {1, 2, 0, 4'000'000, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}},
                    {{0, 1}, {1, 2}, {0, 2}},
                    {1}});
  PlanRequest request = request_of(2, 2);
  request.cuts = {1, 2};
  const Plan plan = planned(profile, make_cluster(3), request);
  REQUIRE(plan.predicted.edges.size() == 3);
  const StageEdge skip{StageId{0}, StageId{2}, Bytes(4'000'000), Bytes(4'000'000), 1, 1};
  CHECK(std::count(plan.predicted.edges.begin(), plan.predicted.edges.end(), skip) == 1);
  for (const LinkPrediction& link : plan.predicted.links) CHECK(link.bytes_per_step == Bytes(8'000'000));
  CHECK(plan.predicted.links.size() == 6);
}

TEST_CASE("slow links leave everything on one device") {
  // At 1e3 bytes/s a cut of 4 MB takes over an hour and so does an all-reduce.
  const Profile profile = make_profile(
      {{{10, 20, 4'000'000, 4'000'000, 0, 0, 0}, {10, 20, 4'000'000, 4'000'000, 0, 0, 0}}, {}, {1}});
  PlanRequest request = request_of(8, 8);
  request.force_units = true;
  const Plan plan = planned(profile, make_cluster(4, 0, 1e3), request);
  CHECK(plan.stages.size() == 1);
  CHECK(plan.workers.size() == 1);
}

TEST_CASE("a slower device is left out when it would hold the others up") {
  // Two devices of speed 1 and one of 0.1: data parallelism over the fast ones, 4 * 6 ms.
  Cluster cluster = make_cluster(3);
  cluster.devices[1].speed = 0.1;
  const Plan plan = planned(even_chain(2), cluster, request_of(8, 8));
  CHECK(plan.predicted.step.count() == exactly(0.024));
  REQUIRE(plan.workers.size() == 2);
  CHECK(plan.workers[1].device == DeviceId{2});
  CHECK(plan.devices.size() == 3);
}

}  // namespace pp::plan::planner_test

TEST_SUITE_END();

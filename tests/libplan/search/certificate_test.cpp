// What a plan promises, against the simulated step of every plan of its schedule.
#include <algorithm>
#include <array>

#include "libplan/answer/make_plan.h"
#include "libplan/request/machine.h"
#include "libplan/schedule/program_text.h"
#include "tests/libplan/search/enumerated.h"
#include "tests/libplan/search/searched.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/certificate");

namespace pp::plan::certificate_test {
namespace {

using test::Enumerated;
using test::Random;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;

/// A chain of 1-8 + 2-16 ms, up to 3 MB of weights, 4 MB of output and 4 MB kept for backward per layer.
Profile random_chain(Random& random, int layers) {
  test::ProfileSpec spec;
  for (int l = 0; l < layers; ++l) {
    spec.layers.push_back({1.0 * random.integer(1, 8), 2.0 * random.integer(1, 8),
                           random.integer(0, 3) * 1'000'000, random.integer(0, 4) * 1'000'000,
                           random.integer(0, 4) * 1'000'000, 0, 0});
  }
  return test::make_profile(spec);
}

PlanRequest random_request(Random& random) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(random.integer(1, 4));
  request.schedule = random.integer(0, 1) == 0 ? "gpipe" : "1f1b";
  if (request.schedule == "1f1b") request.window = WindowRule::win;  // the planner leaves it alone
  return request;
}

/// Messages that cost up to 3 ms each and pass beside the work to some share, over one port or two; an
/// all-reduce that the last backward hides in part.
Cluster demanding_cluster(Random& random, int devices) {
  Cluster cluster = test::make_cluster(devices);
  Level& level = cluster.levels.front();
  level.message_cost = Seconds(1e-3 * random.integer(0, 3));
  level.overlap = 0.25 * random.integer(0, 4);
  level.duplex = random.integer(0, 1) == 0 ? Duplex::half : Duplex::full;
  level.all_reduce = {level.bandwidth, level.latency, 0, {}, 0.5 * random.integer(0, 2)};
  return cluster;
}

/// How the plans of many instances compare with the best of all.
struct Tally {
  int plans = 0;
  int best = 0;    ///< as fast as the best of all
  int proven = 0;  ///< as fast as the bound

  /// Requires what always holds, of the bound before a certificate is made of it. `best_step`: infinity when
  /// nothing fits.
  void add(const Profile& profile, const Cluster& cluster, const PlanRequest& request, double best_step) {
    const SearchOutcome found = test::searched(profile, cluster, request);
    if (best_step == kInfinity) {
      REQUIRE(found.ranked.empty());
      const auto result = make_plan(profile, cluster, request);
      REQUIRE(std::holds_alternative<Infeasible>(result));
      REQUIRE(std::get<Infeasible>(result).short_by > Bytes(0));
      return;
    }
    REQUIRE_FALSE(found.ranked.empty());
    const double step = test::step_of(found);
    REQUIRE(found.bound <= best_step * (1 + kRounding));
    REQUIRE(step >= best_step * (1 - kRounding));
    ++plans;
    best += step <= best_step * (1 + kRounding) ? 1 : 0;
    proven += step <= found.bound * (1 + kRounding) ? 1 : 0;
  }
};

/// Every staging with any replicas: on the first devices in turn, or on any.
enum class Devices { first, any };
double best_of_all(const Profile& profile, const Cluster& cluster, const PlanRequest& request,
                   Devices devices) {
  const Enumerated plans(profile, cluster, request);
  double best = kInfinity;
  const auto allowed = [&](const std::vector<int>& workers) {
    return request.max_replicas == 0 || std::ssize(workers) <= request.max_replicas;
  };
  plans.for_each([&](const Assignment& plan) {
    if (!std::ranges::all_of(plan.stage_workers, allowed)) return;
    best = std::min(best, devices == Devices::any ? plans.best_placed_step(plan) : plans.step(plan));
  });
  return best;
}

}  // namespace

TEST_CASE("chains: no plan is below the bound, and the planner's is the best of all") {
  Random random(51);
  Tally tally;
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    const Profile profile = random_chain(random, random.integer(1, 4));
    const Cluster cluster = test::make_cluster(random.integer(1, 3));
    PlanRequest request = random_request(random);
    if (round % 2 == 0) request.memory_limit = Bytes(random.integer(4, 40) * 1'000'000);
    tally.add(profile, cluster, request, best_of_all(profile, cluster, request, Devices::first));
  }
  CHECK(tally.plans > 800);
  CHECK(tally.best == tally.plans);
  CHECK(100 * tally.proven > 80 * tally.plans);
}

TEST_CASE(
    "messages that ask time of the devices, all-reduces that the last backward hides: the same of chains") {
  Random random(54);
  Tally tally;
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    const Profile profile = random_chain(random, random.integer(1, 4));
    const Cluster cluster = demanding_cluster(random, random.integer(1, 3));
    PlanRequest request = random_request(random);
    if (round % 2 == 0) request.max_replicas = 1;  // or data parallelism wins, which sends nothing
    if (round % 4 == 0) request.memory_limit = Bytes(random.integer(4, 40) * 1'000'000);
    if (round % 4 == 1) request.all_reduce_overlap = 0.25 * random.integer(0, 4);
    tally.add(profile, cluster, request, best_of_all(profile, cluster, request, Devices::first));
  }
  CHECK(tally.plans > 900);
  CHECK(tally.best == tally.plans);
  CHECK(100 * tally.proven > 60 * tally.plans);  // the bound hides what buckets are complete too late for
}

TEST_CASE("messages that ask time of the devices: the same of graphs, 99 of 100 plans are the best of all") {
  Random random(55);
  Tally tally;
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    const Profile profile = test::random_graph(random, random.integer(3, 5));
    const Cluster cluster = demanding_cluster(random, random.integer(2, 3));
    const PlanRequest request = random_request(random);
    tally.add(profile, cluster, request, best_of_all(profile, cluster, request, Devices::first));
  }
  CHECK(tally.plans == 500);
  CHECK(100 * tally.best >= 99 * tally.plans);
}

TEST_CASE("graphs: no staging is below the bound, and 99 of 100 plans are the best of all") {
  Random random(52);
  Tally tally;
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    const Profile profile = test::random_graph(random, random.integer(3, 5));
    const Cluster cluster = test::make_cluster(random.integer(2, 3));
    const PlanRequest request = random_request(random);
    tally.add(profile, cluster, request, best_of_all(profile, cluster, request, Devices::first));
  }
  CHECK(tally.plans == 1000);
  CHECK(100 * tally.best >= 99 * tally.plans);
  CHECK(100 * tally.proven > 25 * tally.plans);  // the bound is over any layer order
}

TEST_CASE(
    "unequal devices: no staging on any of them is below the bound, and 98 of 100 plans are the best of all") {
  Random random(53);
  Tally tally;
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    const Profile profile = random_chain(random, random.integer(1, 3));
    Cluster cluster = test::make_cluster(random.integer(2, 3));
    for (Device& device : cluster.devices) {
      device.speed = random.integer(1, 3);
      if (round % 2 == 0) device.memory = Bytes(random.integer(4, 40) * 1'000'000);
    }
    const PlanRequest request = random_request(random);
    tally.add(profile, cluster, request, best_of_all(profile, cluster, request, Devices::any));
  }
  CHECK(tally.plans > 900);
  CHECK(100 * tally.best >= 98 * tally.plans);
  CHECK(100 * tally.proven > 40 * tally.plans);
}

TEST_CASE(
    "nodes of unequal sizes: the same, and as on a machine of equal ones whose other devices hold nothing") {
  const std::array levels{LevelSpec{2, BytesPerSecond(1e10)}, LevelSpec{2, BytesPerSecond(1e9)}};
  Cluster full = nested_cluster(levels, DeviceKind::cpu, Seconds(1e-4), Bytes(0));
  const std::vector<int> left{0, 2, 3};
  const Cluster cluster = some_devices(full, left);
  REQUIRE(slot_of(cluster, 1) == 2);
  full.devices[1].memory = Bytes(1);
  Random random(56);
  Tally tally;
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const Profile profile = random_chain(random, random.integer(1, 3));
    const PlanRequest request = random_request(random);
    const double best = best_of_all(profile, cluster, request, Devices::any);
    CHECK(best_of_all(profile, full, request, Devices::any) == doctest::Approx(best).epsilon(kRounding));
    tally.add(profile, cluster, request, best);
  }
  CHECK(tally.plans == 300);
  CHECK(100 * tally.best >= 98 * tally.plans);
}

TEST_CASE("programs from a file that split the backward are bounded by its cheaper halves") {
  // Two layers of 1 + 4 ms whose halves I and W take 1 ms each, two micro-batches. Whole backwards would take
  // 1 + 4 ms on one stage and 2 (1 + 4) on the other, 15 ms; worker 0 runs F F, waits for I from 2 to 3 ms and
  // once more from 5 to 6, and ends at 8 ms.
  Profile profile = test::make_profile({{{1, 4, 0, 0, 0, 0, 0}, {1, 4, 0, 0, 0, 0, 0}}, {}, {1}});
  for (LayerProfile& layer : profile.layers) {
    layer.points[0].input_gradient = layer.points[0].weight_gradient = layer.points[0].forward;
  }
  PlanRequest request;
  request.mini_batch = 2;
  request.schedule = "custom";
  request.programs = parse_csv("0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n");
  const auto result = make_plan(profile, test::make_cluster(2), request);
  REQUIRE(std::holds_alternative<Plan>(result));
  const Plan& plan = std::get<Plan>(result);
  CHECK(plan.predicted.step.count() == doctest::Approx(0.008));
  CHECK(test::searched(profile, test::make_cluster(2), request).bound <= 0.008 * (1 + kRounding));
}

}  // namespace pp::plan::certificate_test

TEST_SUITE_END();

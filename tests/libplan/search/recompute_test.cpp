// Plans that run forwards again: by hand, against enumeration, and never worse than plans that do not.
#include "libplan/answer/make_plan.h"
#include "libplan/price/predict.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <ranges>

#include "libplan/plan/programs.h"
#include "libplan/price/recompute_choice.h"
#include "tests/libplan/search/enumerated.h"
#include "tests/libplan/search/searched.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/recompute");

namespace pp::plan::recompute_test {
namespace {

using test::make_cluster;
using test::Random;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

constexpr std::int64_t kMb = 1'000'000;

/// Two layers of 1 + 2 ms that save 10 MB each, 1 MB between them, which b keeps itself.
Profile two_layers() {
  return test::make_profile({{{1, 2, 0, kMb, 10 * kMb, 0}, {1, 2, 0, 0, 10 * kMb, kMb}}, {}, {1}});
}

PlanRequest request_of(std::int64_t limit, const std::string& schedule, RecomputeMode mode) {
  PlanRequest request;
  request.mini_batch = 4;
  request.micro_batches = 4;
  request.schedule = schedule;
  request.memory_limit = Bytes(limit);
  request.recompute = mode;
  return request;
}

Plan planned(const Profile& profile, int devices, const PlanRequest& request) {
  auto result = make_plan(profile, make_cluster(devices), request);
  if (const auto* none = std::get_if<Infeasible>(&result)) FAIL(none->reason);
  return std::get<Plan>(std::move(result));
}

Profile random_profile(Random& random, int layers) {
  test::ProfileSpec spec;
  for (int l = 0; l < layers; ++l) {
    const int saved = random.integer(0, 5) * 100'000;
    spec.layers.push_back({random.integer(1, 8) * 0.5, random.integer(1, 8) * 1.0,
                           random.integer(0, 2) * 100'000, random.integer(0, 4) * 50'000, saved,
                           random.integer(0, saved)});
  }
  return test::make_profile(spec);
}

/// The fastest step over all partitions, replicas and choices of what runs again whose simulated peaks keep to
/// the limit.
double best_by_enumeration(const Profile& profile, int devices, const PlanRequest& request) {
  const Cluster cluster = make_cluster(devices);
  const test::Enumerated plans(profile, cluster, request);
  double best = std::numeric_limits<double>::infinity();
  plans.for_each([&](const Assignment& plain) {
    test::for_each_choice(plain.stage_layers, [&](const RecomputeChoice& choice) {
      best = std::min(best, plans.step(with_recompute(plain, choice)));
    });
  });
  return best;
}

}  // namespace

TEST_CASE("one device, gpipe: the layer that costs least to run again, both, or none") {
  // Four micro-batches in flight. Nothing again: 4 * 20 = 80 MB, 4 * 6 = 24 ms.
  const auto plan_at = [](std::int64_t megabytes) {
    return planned(two_layers(), 1, request_of(megabytes * kMb, "gpipe", RecomputeMode::automatic));
  };
  const Plan roomy = plan_at(80);
  CHECK(roomy.schedule.recompute == RecomputePolicy::never);
  CHECK(roomy.predicted.step.count() == exactly(0.024));

  // a again: 4 * (0 + 10) + 10 = 50 MB, one millisecond more for each; b again would keep its input: 54 MB. The
  // whole stage again takes two.
  const Plan first = plan_at(50);
  CHECK(first.schedule.recompute == RecomputePolicy::per_stage);
  CHECK(first.stages[0].recompute == std::vector<std::string>{"a"});
  CHECK(first.predicted.step.count() == exactly(0.028));
  CHECK(first.predicted.workers[0].memory.peak == Bytes(50 * kMb));
  CHECK(first.predicted.stages[0].backward.count() == exactly(0.005));

  // Both: 4 * 1 + 10 = 14 MB, as fast as R, which has all 20 MB of a micro-batch at a time.
  const Plan both = plan_at(49);
  CHECK(both.stages[0].recompute == std::vector<std::string>{"a", "b"});
  CHECK(both.predicted.step.count() == exactly(0.032));
  CHECK(both.predicted.workers[0].memory.peak == Bytes(14 * kMb));
  for (const Plan& plan : {roomy, first, both}) {
    check_plan(plan);
    CHECK(predict(plan, two_layers(), make_cluster(1)) == plan.predicted);
    CHECK(parse_plan(dump_json(to_json(plan))) == plan);
    CHECK(simulate(simulation_input(plan)).makespan == plan.predicted.makespan);
  }
}

TEST_CASE("always and except_last: R in every program, one micro-batch or two at a time") {
  const Plan always = planned(two_layers(), 1, request_of(20 * kMb, "gpipe", RecomputeMode::always));
  CHECK(always.schedule.recompute == RecomputePolicy::always);
  CHECK(to_text(always.workers[0].program.program) ==
        "F0.0 F0.1 F0.2 F0.3 R0.0 B0.0 R0.1 B0.1 R0.2 B0.2 R0.3 B0.3 U0");
  CHECK(always.predicted.step.count() == exactly(0.032));
  CHECK(always.predicted.workers[0].memory.peak == Bytes(20 * kMb));
  CHECK(always.predicted.stages[0].recompute.count() == exactly(0.002));

  const Plan except_last = planned(two_layers(), 1, request_of(40 * kMb, "gpipe", RecomputeMode::except_last));
  CHECK(except_last.schedule.recompute == RecomputePolicy::except_last);
  CHECK(except_last.predicted.step.count() == exactly(0.030));
  CHECK(except_last.predicted.workers[0].memory.peak == Bytes(40 * kMb));
}

TEST_CASE("a stage without room runs again, the others keep everything") {
  // Two stages of one layer under 1f1b: stage 0 has two micro-batches in flight, 20 MB, stage 1 one of 9 + 1
  // MB. Running a again costs 1 ms either way; R does it while the gradient is on its way, so it wins: 10 MB.
  PlanRequest request = request_of(15 * kMb, "1f1b", RecomputeMode::automatic);
  request.cuts = {1};
  request.replicas = {1, 1};
  const Plan plan = planned(two_layers(), 2, request);
  CHECK(recompute_text(plan) == "all|-");
  CHECK(plan.schedule.recompute == RecomputePolicy::per_stage);
  CHECK(plan.predicted.workers[0].memory.peak == Bytes(10 * kMb));
  CHECK(plan.context.at("recompute") == "auto");
}

TEST_CASE("when only recompute makes a plan fit, that is the remedy, and it does") {
  PlanRequest request = request_of(14 * kMb, "gpipe", RecomputeMode::never);
  request.stages = 1;
  const auto none = std::get<Infeasible>(make_plan(two_layers(), make_cluster(1), request));
  CHECK(none.remedy == "--recompute auto");
  CHECK(none.smallest_limit == Bytes(80 * kMb));
  request.recompute = RecomputeMode::automatic;
  CHECK(planned(two_layers(), 1, request).predicted.workers[0].memory.peak <= Bytes(14 * kMb));
  request.memory_limit = Bytes(14 * kMb - 1);
  const auto less = std::get<Infeasible>(make_plan(two_layers(), make_cluster(1), request));
  CHECK(less.smallest_limit == Bytes(14 * kMb));
}

TEST_CASE("schedules that place their stages run stages again as a whole") {
  // zb-h1 on two workers, one layer each, M = 4: two micro-batches in flight on worker 0 take 20 MB and more.
  PlanRequest request = request_of(16 * kMb, "zb-h1", RecomputeMode::never);
  request.stages = 2;
  const auto none = std::get<Infeasible>(make_plan(two_layers(), make_cluster(2), request));
  CHECK(none.short_by > Bytes(0));
  request.recompute = RecomputeMode::always;
  request.memory_limit = Bytes(30 * kMb);
  const Plan plan = planned(two_layers(), 2, request);
  check_plan(plan);
  CHECK(plan.schedule.recompute == RecomputePolicy::always);
  request.recompute = RecomputeMode::automatic;
  CHECK(planned(two_layers(), 2, request).predicted.step <= plan.predicted.step);
}

TEST_CASE("requests that cannot run anything again are refused") {
  PlanRequest request = request_of(kMb, "pipedream", RecomputeMode::except_last);
  request.micro_batches = 1;
  CHECK_THROWS_WITH_AS(
      make_plan(two_layers(), make_cluster(1), request),
      "recompute except_last needs a last micro-batch, schedule pipedream has none; use always or auto", Error);
}

TEST_CASE("blocks of a trainer run again from a stage's first, of a block that is cut its part in the stage") {
  Random random(15);
  int cut = 0, plans = 0;
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    const Profile profile = test::in_blocks(random_profile(random, 6), 3);
    PlanRequest request = request_of(random.integer(2, 40) * 100'000, "1f1b", RecomputeMode::automatic);
    request.recompute_extent = RecomputeExtent::first_blocks;
    const auto result = find_plan(profile, make_cluster(random.integer(1, 3)), request);
    if (!std::holds_alternative<Plan>(result)) continue;
    const Plan& plan = std::get<Plan>(result);
    check_plan(plan);
    ++plans;
    std::size_t most = 0;  // blocks that run again, of any stage
    std::vector<std::vector<std::vector<std::string>>> held;
    for (const Stage& stage : plan.stages) {
      auto& blocks = held.emplace_back();
      for (const std::string& layer : stage.layers) {
        if (blocks.empty() || blocks.back().back().substr(0, 3) != layer.substr(0, 3)) blocks.emplace_back();
        blocks.back().push_back(layer);
      }
      std::size_t again = stage.recompute.size(), count = 0;
      for (; again > 0; ++count) again -= std::min(again, blocks.at(count).size());
      most = std::max(most, count);
      cut += count > 0 && blocks.front().size() < 3 ? 1 : 0;
    }
    for (std::size_t s = 0; s < held.size(); ++s) {
      std::vector<std::string> expected;
      for (const auto& block : held[s] | std::views::take(most))
        expected.insert(expected.end(), block.begin(), block.end());
      CHECK(plan.stages[s].recompute == expected);
    }
  }
  CHECK(plans > 200);
  CHECK(cut > 20);
}

TEST_CASE("with recompute the plan is never slower, the bound holds for every partition and choice") {
  Random random(12);
  int with = 0, plans = 0, fastest = 0;
  for (int round = 0; round < 500; ++round) {
    CAPTURE(round);
    const Profile profile = random_profile(random, random.integer(1, 4));
    const int devices = random.integer(1, 3);
    const std::string schedule = round % 2 == 0 ? "gpipe" : "1f1b";
    PlanRequest request = request_of(random.integer(2, 40) * 100'000, schedule, RecomputeMode::automatic);
    if (schedule == "1f1b") request.window = WindowRule::win;  // the planner leaves it alone
    const double best = best_by_enumeration(profile, devices, request);
    const auto result = make_plan(profile, make_cluster(devices), request);
    request.recompute = RecomputeMode::never;
    const auto plain = make_plan(profile, make_cluster(devices), request);
    if (const auto* none = std::get_if<Infeasible>(&result)) {
      CHECK(std::holds_alternative<Infeasible>(plain));
      // The limit it names is enough, and one byte less is not.
      request.recompute = RecomputeMode::automatic;
      request.memory_limit = none->smallest_limit;
      CHECK(std::holds_alternative<Plan>(make_plan(profile, make_cluster(devices), request)));
      request.memory_limit = *none->smallest_limit - Bytes(1);
      CHECK(std::holds_alternative<Infeasible>(make_plan(profile, make_cluster(devices), request)));
      continue;
    }
    const Plan& plan = std::get<Plan>(result);
    check_plan(plan);
    with += plan.schedule.recompute == RecomputePolicy::never ? 0 : 1;
    for (const WorkerPrediction& worker : plan.predicted.workers)
      CHECK(worker.memory.peak <= *request.memory_limit);
    request.recompute = RecomputeMode::automatic;
    CHECK(test::searched(profile, make_cluster(devices), request).bound <= best * (1 + 1e-9));
    CHECK(plan.predicted.step.count() >= best * (1 - 1e-9));
    ++plans;
    fastest += plan.predicted.step.count() <= best * (1 + 1e-9) ? 1 : 0;
    if (const Plan* without = std::get_if<Plan>(&plain))
      CHECK(plan.predicted.step.count() <= without->predicted.step.count() * (1 + 1e-9));
  }
  CHECK(with > 60);
  CHECK(10 * fastest > 9 * plans);
}

}  // namespace pp::plan::recompute_test

TEST_SUITE_END();

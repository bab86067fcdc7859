// Requests on which the planner once answered wrongly: a plan refused, a device's memory counted twice, a bound
// that forgot something.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "libplan/answer/make_plan.h"
#include "libplan/plan/programs.h"
#include "libplan/price/predict.h"
#include "libplan/search/certificate.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/planner_cases");

namespace pp::plan::planner_cases_test {
namespace {

constexpr std::int64_t kMb = 1'000'000;

/// Three layers that save what they send: 1, 4 and 2 MB, in 1, 1 and 2 ms.
Profile abc(DeviceKind kind, std::int64_t size = 1) {
  Profile profile = test::make_profile({{{0.5, 0.5, 0, 1 * kMb, 1 * kMb, 0, 0},
                                         {0.5, 0.5, 0, 4 * kMb, 4 * kMb, 0, 0},
                                         {1, 1, 0, 2 * kMb, 2 * kMb, 0, 0}},
                                        {},
                                        {size}});
  profile.device.kind = kind;
  return profile;
}

Cluster flat(int devices, DeviceKind kind, double bandwidth = 1e12) {
  return flat_cluster(devices, kind, BytesPerSecond(bandwidth), Seconds(0), Bytes(0));
}

Cluster nodes(int per_node, int count, DeviceKind kind, double bandwidth = 1e12) {
  const std::vector<LevelSpec> levels{{per_node, BytesPerSecond(bandwidth)},
                                      {count, BytesPerSecond(bandwidth)}};
  return nested_cluster(levels, kind, Seconds(0), Bytes(0));
}

PlanRequest two_stages(int micro_batches) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(micro_batches);
  request.schedule = "1f1b";
  request.stages = 2;
  return request;
}

Plan planned(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  auto result = make_plan(profile, cluster, request);
  if (const auto* none = std::get_if<Infeasible>(&result)) FAIL(none->reason);
  return std::get<Plan>(std::move(result));
}

}  // namespace

TEST_CASE("listed windows are tested stage by stage under a memory limit, as the same windows by rule are") {
  // Layer a alone: 2 * 1 MB saved, 2 * 1 MB of buffers for what it sends. Layers b and c: 6 saved, 1 received,
  // 2 * 1 of buffers. Two micro-batches of the second stage would be 16 MB.
  PlanRequest request = two_stages(4);
  request.memory_limit = Bytes(9'500'000);
  request.window = WindowRule::win;
  const Plan by_rule = planned(abc(DeviceKind::cuda), flat(2, DeviceKind::cuda), request);
  request.window = WindowRule::explicit_list;
  request.windows = {2, 1};
  const Plan listed = planned(abc(DeviceKind::cuda), flat(2, DeviceKind::cuda), request);
  CHECK(stages_text(listed) == "1|2");
  CHECK(listed.predicted.workers[0].memory.peak == Bytes(4 * kMb));
  CHECK(listed.predicted.workers[1].memory.peak == Bytes(9 * kMb));
  CHECK(listed.stages == by_rule.stages);
  CHECK(listed.predicted.step == by_rule.predicted.step);
  request.memory_limit = Bytes(9 * kMb - 1);
  const auto none = std::get<Infeasible>(make_plan(abc(DeviceKind::cuda), flat(2, DeviceKind::cuda), request));
  CHECK(none.short_by == Bytes(1));
  CHECK(none.smallest_limit == Bytes(9 * kMb));
}

TEST_CASE("two stages that reduce over the same network cards take turns, unless each device has its own") {
  // Two nodes of two devices, each stage on one device of either node. F = B = 1 ms on both stages, one
  // micro-batch for each replica: the last backwards end at 3 and 4 ms. Each all-reduce moves 8 MB at 1 MB/ms.
  const test::LayerRow row{1, 1, 8 * kMb, 0, 1 * kMb, 0, 0};
  const Profile profile = test::make_profile({{row, row}, {}, {1}});
  const std::vector<LevelSpec> levels{{2, BytesPerSecond(1e12)}, {2, BytesPerSecond(1e9)}};
  Cluster cluster = nested_cluster(levels, DeviceKind::cpu, Seconds(0), Bytes(0));
  PlanRequest request = two_stages(2);
  request.replicas = {2, 2};
  request.placement = Placement::scatter;
  CHECK(planned(profile, cluster, request).predicted.makespan.count() == doctest::Approx(19e-3));
  cluster.levels.front().cards = 2;
  const Plan apart = planned(profile, cluster, request);
  CHECK(apart.predicted.makespan.count() == doctest::Approx(12e-3));
  CHECK(parse_plan(dump_json(to_json(apart))) == apart);
  CHECK(predict(apart, profile, cluster_of(apart)).makespan == apart.predicted.makespan);
  CHECK(chained_period(simulation_input(apart)) == apart.predicted.step);
}

TEST_CASE("a schedule whose micro-batches were not profiled is left out, and the certificate says so") {
  // pipedream updates after every micro-batch, so it would run 64 samples at once; profiled are 8.
  PlanRequest request;
  request.mini_batch = 64;
  const Plan synchronous = planned(abc(DeviceKind::cuda, 8), flat(2, DeviceKind::cuda), request);
  request.allow_async = true;
  const Plan plan = planned(abc(DeviceKind::cuda, 8), flat(2, DeviceKind::cuda), request);
  CHECK(plan.predicted.step <= synchronous.predicted.step);
  CHECK(plan.certificate.search.find("left out: pipedream, the profile has no times") != std::string::npos);
  CHECK(synchronous.certificate.search.find("left out: pipedream") == std::string::npos);
  request.schedule = "pipedream";
  CHECK_THROWS_AS(make_plan(abc(DeviceKind::cuda, 8), flat(2, DeviceKind::cuda), request), Error);
}

TEST_CASE("workers of one node hand over by reference whatever other nodes the cluster has") {
  // Layer a: 2 * 1 MB; layers b and c: 6 + 1 MB. By copy the second stage would need 2 MB more.
  PlanRequest request = two_stages(4);
  request.replicas = {1, 1};
  request.memory_limit = Bytes(7'500'000);
  const Plan alone = planned(abc(DeviceKind::cpu), flat(2, DeviceKind::cpu), request);
  const Plan plan = planned(abc(DeviceKind::cpu), nodes(2, 2, DeviceKind::cpu), request);
  CHECK(plan.stages == alone.stages);
  CHECK(plan.predicted.step == alone.predicted.step);
  CHECK(plan.predicted.workers[0].memory.peak == Bytes(2 * kMb));
  CHECK(plan.predicted.workers[1].memory.peak == Bytes(7 * kMb));
  // One worker on each of two nodes copies.
  const auto none =
      std::get<Infeasible>(make_plan(abc(DeviceKind::cpu), nodes(1, 2, DeviceKind::cpu), request));
  CHECK(none.short_by == Bytes(1'500'000));
}

TEST_CASE("a stage between two nodes has buffers for the messages over the border alone") {
  // Four layers of 1 MB in four stages on two nodes of two: the border is the middle cut. In flight 4, 3, 2, 1.
  // Saved 4, 3, 2, 1; received 0, 3, 2, 1; buffers 0, 2, 2, 0.
  const Profile profile =
      test::make_profile({std::vector<test::LayerRow>(4, {1, 1, 0, 1 * kMb, 1 * kMb, 0, 0}), {}, {1}});
  PlanRequest request = two_stages(4);
  request.stages = 4;
  request.window = WindowRule::win;
  request.memory_limit = Bytes(8 * kMb);
  const Plan plan = planned(profile, nodes(2, 2, DeviceKind::cpu), request);
  std::vector<std::int64_t> peaks;
  for (const WorkerPrediction& worker : plan.predicted.workers) peaks.push_back(worker.memory.peak.value / kMb);
  CHECK(peaks == std::vector<std::int64_t>{4, 8, 6, 2});
  request.memory_limit = Bytes(8 * kMb - 1);
  CHECK(std::holds_alternative<Infeasible>(make_plan(profile, nodes(2, 2, DeviceKind::cpu), request)));
}

TEST_CASE("two workers on one GPU share its memory, in the search and in the check") {
  // As among workers of one node: 2 and 7 MB, 9 MB on the only GPU.
  Cluster cluster = flat(2, DeviceKind::cuda);
  cluster.devices[1].index = 0;
  PlanRequest request = two_stages(4);
  request.replicas = {1, 1};
  request.memory_limit = Bytes(9 * kMb);
  Plan plan = planned(abc(DeviceKind::cuda), cluster, request);
  CHECK(plan.predicted.workers[0].memory.peak + plan.predicted.workers[1].memory.peak == Bytes(9 * kMb));
  check_plan(plan);
  for (Device& device : plan.devices) device.memory = Bytes(9 * kMb - 1);
  CHECK_THROWS_WITH_AS(
      check_plan(plan),
      "/predicted/workers/1/peak_bytes: 9000000 with that of worker 0 on the same hardware exceeds "
      "the 8999999 bytes of cuda:0; use more stages or smaller micro-batches",
      Error);
  request.memory_limit = Bytes(9 * kMb - 1);
  const auto result = make_plan(abc(DeviceKind::cuda), cluster, request);
  REQUIRE(std::holds_alternative<Infeasible>(result));
  const auto& none = std::get<Infeasible>(result);
  CHECK(none.short_by == Bytes(1));
  CHECK(none.smallest_limit == Bytes(9 * kMb));
}

TEST_CASE("the bound over several nodes counts what runs again, as on one node") {
  // Two layers of 9 + 1 ms, three of 1 + 9, eight micro-batches, all stages again from their inputs: layers 0
  // and 1 on two devices are busy 4 * (20 + 18) = 152 ms; so are 2 to 4 on two, 4 * (30 + 3) = 132 and less.
  Profile profile = test::make_profile({{{9, 1, 1000, 1000, 1000, 0, 0},
                                         {9, 1, 1000, 1000, 1000, 0, 0},
                                         {1, 9, 1000, 1000, 1000, 0, 0},
                                         {1, 9, 1000, 1000, 1000, 0, 0},
                                         {1, 9, 1000, 1000, 1000, 0, 0}},
                                        {},
                                        {1}});
  PlanRequest request = two_stages(8);
  request.recompute = RecomputeMode::always;
  const Plan one = planned(profile, flat(4, DeviceKind::cpu, 1e10), request);
  const Plan two = planned(profile, nodes(2, 2, DeviceKind::cpu, 1e10), request);
  CHECK(one.certificate.lower_bound.count() == doctest::Approx(0.152).epsilon(1e-4));
  CHECK(two.certificate.lower_bound.count() == doctest::Approx(0.152).epsilon(1e-4));
  CHECK(two.certificate.gap < 1e-3);
}

TEST_CASE("a bound above the step of a plan is an error of the planner, not a proof") {
  SearchOutcome outcome;
  outcome.ranked.emplace_back();
  outcome.ranked.front().prediction.step = Seconds(2);
  outcome.schedules = outcome.orders = outcome.batches = 1;
  outcome.bound = 1;
  CHECK(certify(outcome).gap == 1);
  outcome.bound = 2 * (1 + 1e-10);  // another order of the sums
  CHECK(certify(outcome).gap == 0);
  outcome.bound = 2.001;
  try {
    certify(outcome);
    FAIL("a wrong bound was taken");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::internal);
  }
}

TEST_CASE("exact over is said of what was searched exactly") {
  SearchOutcome outcome;
  outcome.ranked.emplace_back();
  outcome.orders = outcome.batches = 1;
  outcome.schedules = 3;
  CHECK(certify(outcome).search.starts_with("exact over 1 layer order, 1 micro-batch count and 3 schedules; "));
  outcome.placed_schedules = 1;
  CHECK(
      certify(outcome).search.starts_with("exact over 1 layer order, 1 micro-batch count and 2 schedules, not "
                                          "exactly over 1 schedule that places its "
                                          "stages; "));
  outcome.placed_schedules = 3;
  CHECK(certify(outcome).search.starts_with(
      "searched 1 layer order, 1 micro-batch count and 3 schedules that place their stages; "));
  outcome.placed_schedules = 0;
  outcome.exact = false;
  CHECK(certify(outcome).search.starts_with("searched 1 layer order, "));
  outcome.exact = outcome.cut_short = true;
  CHECK(certify(outcome).search.starts_with("searched 1 layer order, "));
  CHECK(certify(outcome).search.find("cut short by the time limit") != std::string::npos);
}

TEST_CASE("windows are wider than those of 1f1b only where the step gains 1 %") {
  // Two stages of 1 + 1 s, eight micro-batches; a window of 2 waits for both messages of every second one. At 4
  // ms each that is about 0.2 % of the time, at 100 ms about 5 %.
  const Profile profile =
      test::make_profile({{{1000, 1000, 0, 1 * kMb, 0, 0, 0}, {1000, 1000, 0, 0, 0, 0, 0}}, {}, {1}});
  const auto plan_at = [&](double message_s, std::optional<WindowRule> rule) {
    PlanRequest request = two_stages(8);
    request.replicas = {1, 1};
    request.force_units = true;
    request.window = rule;
    request.windows = {4, 1};
    return planned(profile, flat(2, DeviceKind::cpu, 1e6 / message_s), request);
  };
  for (const double message_s : {0.004, 0.1}) {
    CAPTURE(message_s);
    const Plan classic = plan_at(message_s, WindowRule::win);
    const Plan wide = plan_at(message_s, WindowRule::explicit_list);
    const Plan chosen = plan_at(message_s, std::nullopt);
    const double gain = classic.predicted.step / wide.predicted.step - 1;
    REQUIRE(gain > 0);
    CHECK((gain < 0.01) == (message_s < 0.01));
    CHECK(windows_of(classic) == std::vector<int>{2, 1});
    CHECK(classic_windows(chosen) == std::vector<int>{2, 1});
    if (gain < 0.01) {
      CHECK(windows_of(chosen) == std::vector<int>{2, 1});
      CHECK(widened_from(chosen).empty());
    } else {
      CHECK(windows_of(chosen)[0] > 2);
      CHECK(widened_from(chosen) == std::vector<std::optional<int>>{2, std::nullopt});
      CHECK(chosen.predicted.step <= wide.predicted.step);
    }
  }
}

TEST_CASE("a search that is stopped answers with the best plan so far and a bound that holds") {
  const Profile profile = test::example_c();
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(4);
  const Plan full = planned(profile, test::make_cluster(3), request);
  for (const int looks : {0, 1, 3, 10}) {
    CAPTURE(looks);
    int left = looks;
    request.observer = [&](const SearchProgress& progress) {
      CHECK(progress.devices >= 1);
      return left-- > 0;
    };
    const Plan plan = planned(profile, test::make_cluster(3), request);
    CHECK(plan.certificate.search.find("cut short by the time limit") != std::string::npos);
    CHECK(plan.certificate.search.find("exact over") == std::string::npos);
    CHECK(plan.predicted.step >= full.predicted.step);
    CHECK(plan.certificate.lower_bound <= full.predicted.step);
  }
  CHECK(full.certificate.search.starts_with("exact over"));
}

TEST_CASE("a search is stopped within its first case, by a plan that fits or an honest refusal") {
  test::ProfileSpec spec;
  for (int l = 0; l < 12; ++l) spec.layers.push_back({1.0 + l % 3, 2.0, kMb, kMb, (1 + l % 4) * kMb, 0, 0});
  const Profile profile = test::make_profile(spec);
  const Cluster cluster = nodes(2, 2, profile.device.kind, 1e9);
  PlanRequest request = two_stages(8);
  request.stages.reset();
  request.memory_limit = Bytes(36 * kMb);  // 34 is the least that has a plan: pair searches
  int looks = 0;
  request.observer = [&](const SearchProgress&) { return ++looks > 0; };
  const Plan full = planned(profile, cluster, request);
  CHECK(looks > 12 * 10);  // every probe of a pair search or an ordered search looks at least once per layer
  int plans = 0;
  for (int stop = 0; stop < looks; stop += 1 + stop / 4) {
    CAPTURE(stop);
    int left = stop;
    int late = 0;
    request.observer = [&](const SearchProgress&) { return left-- > 0 || ++late == 0; };
    try {
      const Plan plan = planned(profile, cluster, request);
      ++plans;
      CHECK(plan.certificate.search.find("cut short by the time limit") != std::string::npos);
      CHECK(plan.predicted.step >= full.predicted.step);
      CHECK(plan.certificate.lower_bound <= full.predicted.step);
    } catch (const Error& error) {
      CHECK(std::string(error.what()).starts_with("the time limit ended the search before any plan was found"));
    }
    CHECK(late <= 2);  // by the search and by the pool of its plans
  }
  CHECK(plans > 0);
}

TEST_CASE("a search that is stopped at once within a memory limit answers with a plan of little load") {
  // The first layers keep most of a micro-batch: neither data parallelism nor equal stages fit.
  test::ProfileSpec spec;
  for (int l = 0; l < 16; ++l) spec.layers.push_back({1, 2, kMb, kMb, (l < 4 ? 8 : 1) * kMb, 0, 0});
  const Profile profile = test::make_profile(spec);
  PlanRequest request = two_stages(8);
  request.stages.reset();
  request.memory_limit = Bytes(60 * kMb);
  const Cluster cluster = flat(4, profile.device.kind);
  const Plan full = planned(profile, cluster, request);
  request.observer = [](const SearchProgress&) { return false; };
  const Plan quick = planned(profile, cluster, request);
  CHECK(quick.certificate.search.find("found by a search within less memory") != std::string::npos);
  CHECK(quick.predicted.step <= 1.3 * full.predicted.step);
}

TEST_CASE("what stops a search for a plan that does not exist stops the search for a remedy, too") {
  test::ProfileSpec spec;
  for (int l = 0; l < 12; ++l) spec.layers.push_back({1, 2, kMb, kMb, (1 + l % 4) * kMb, 0, 0});
  const Profile profile = test::make_profile(spec);
  PlanRequest request = two_stages(8);
  request.memory_limit = Bytes(6 * kMb);
  int looks = 0;
  request.observer = [&](const SearchProgress&) { return ++looks > 0; };
  const Infeasible full = std::get<Infeasible>(make_plan(profile, flat(2, profile.device.kind), request));
  CHECK_FALSE(full.cut_short);
  for (int stop = 0; stop < looks; stop += 1 + stop / 4) {
    CAPTURE(stop);
    int left = stop;
    request.observer = [&](const SearchProgress&) { return left-- > 0; };
    try {
      const auto none = std::get<Infeasible>(make_plan(profile, flat(2, profile.device.kind), request));
      CHECK(none.short_by >= full.short_by);
      CHECK(*none.smallest_limit >= *full.smallest_limit);
      const bool same = none.smallest_limit == full.smallest_limit && none.remedy == full.remedy;
      CHECK((same || none.cut_short));  // what was not tried is not passed over
    } catch (const Error& error) {
      CHECK(std::string(error.what()).starts_with("the time limit ended the search before any plan was found"));
    }
  }
}

TEST_CASE("no search chooses replicas whose turns meet too late for the check of the plan") {
  // Stages as heavy as 17, 16, 13, 11, 9 and 7 want these replicas: 1 ms each, and rounds of 2,450,448
  // micro-batches, where 2,000,000 are the limit. Without one of them rounds are short, and no stage takes more
  // than 7/6 ms.
  test::ProfileSpec spec;
  for (const double ms : {17, 16, 13, 11, 9, 7}) spec.layers.push_back({ms / 2, ms / 2, 0, 0, 0, 0, 0});
  const Profile profile = test::make_profile(spec);
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(1);
  request.schedule = "pipedream";
  request.stages = 6;
  const Plan plan = planned(profile, flat(73, profile.device.kind), request);
  CHECK_NOTHROW(check_plan(plan));
  CHECK(replicas_text(plan) != "17-16-13-11-9-7");
  CHECK(plan.certificate.lower_bound.count() == doctest::Approx(0.001));
  CHECK(plan.predicted.step.count() < 7e-3 / 6);
}

TEST_CASE("what does not fit names smaller micro-batches, as they were given, and recompute") {
  // Two layers that keep 1 kB a sample. Four samples keep 8 kB, two 4 kB; four run again one layer at a time: 4
  // kB.
  const Profile profile =
      test::make_profile({std::vector<test::LayerRow>(2, {1, 2, 0, 0, 1000, 0, 0}), {}, {1, 2, 4}});
  PlanRequest request;
  request.mini_batch = 8;
  request.memory_limit = Bytes(5000);
  request.micro_batches = 2;
  const auto remedy = [&](const Profile& of) {
    return std::get<Infeasible>(make_plan(of, test::make_cluster(1), request)).remedy;
  };
  CHECK(remedy(profile) == "--micro-batches 4, or --recompute auto");
  request.micro_batches.reset();
  request.micro_batch_size = 4;
  CHECK(remedy(profile) == "--micro-batch-size 2, or --recompute auto");
  request.micro_batch_size.reset();
  Profile of_four = test::make_profile({std::vector<test::LayerRow>(2, {1, 2, 0, 0, 4000, 0, 0}), {}, {4}});
  CHECK(remedy(of_four) == "--micro-batch-size 2 --linear-batch, or --recompute auto");
}

TEST_CASE("what lacks memory is named as in the tables, with its node where there are several") {
  // Layers a and b: 2 * 5 MB saved, 2 * 4 MB of buffers for what b sends, 18 MB in all.
  PlanRequest request = two_stages(4);
  request.cuts = {2};
  request.replicas = {1, 1};
  request.memory_limit = Bytes(13 * kMb);
  const auto refused = [&](const Cluster& cluster) {
    return std::get<Infeasible>(make_plan(abc(DeviceKind::cuda), cluster, request)).reason;
  };
  CHECK(refused(flat(2, DeviceKind::cuda)).find(" on cuda:0 in the best attempt, ") != std::string::npos);
  CHECK(refused(nodes(1, 2, DeviceKind::cuda)).find(" on a/cuda:0 in the best attempt, ") != std::string::npos);
  request.memory_limit.reset();
  Plan plan = planned(abc(DeviceKind::cuda), nodes(1, 2, DeviceKind::cuda), request);
  for (Device& device : plan.devices) device.memory = plan.predicted.workers[0].memory.peak - Bytes(1);
  const std::string peak = std::to_string(plan.predicted.workers[0].memory.peak.value);
  const std::string limit = std::to_string(plan.devices[0].memory.value);
  CHECK_THROWS_WITH_AS(check_plan(plan),
                       ("/predicted/workers/0/peak_bytes: " + peak + " exceeds the " + limit +
                        " bytes of a/cuda:0; use more stages or smaller micro-batches")
                           .c_str(),
                       Error);
}

TEST_CASE("the memory that would do is named in a unit that people type, and does") {
  // One layer of 9,000,000.. bytes of state: 3 * 4,500,001 bytes are 13,500,003, rounded up to 12.88 MiB.
  const Profile profile = test::make_profile({{{1, 2, 4'500'001, 0, 0, 0, 0}}, {}, {1}});
  PlanRequest request;
  request.mini_batch = 1;
  request.memory_limit = Bytes(13 * kMb);
  const auto none = std::get<Infeasible>(make_plan(profile, test::make_cluster(1), request));
  CHECK(none.remedy == "--memory-limit 12.88MiB");
  request.memory_limit = parse_bytes("12.88MiB", "limit");
  planned(profile, test::make_cluster(1), request);
}

}  // namespace pp::plan::planner_cases_test

TEST_SUITE_END();

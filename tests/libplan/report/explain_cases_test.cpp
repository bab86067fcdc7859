// Explanations of plans beyond a chain on equal devices: branches, nodes, streams, and nothing that fits.
#include "libplan/answer/make_plan.h"
#include "libplan/report/explain.h"

#include <algorithm>
#include <tuple>

#include "libplan/request/machine.h"
#include "tests/libplan/report/explained.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/report/explain_cases");

namespace pp::plan::explain_cases_test {
namespace {

using test::check_says;
using test::check_silent;
using test::explained;
using test::make_cluster;
using test::make_profile;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

PlanRequest two_stages(const std::string& schedule, int micro_batches) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(micro_batches);
  request.schedule = schedule;
  request.stages = 2;
  return request;
}

/// The plan that the explanation's change is about, made again.
Plan replanned(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  return std::get<Plan>(make_plan(profile, cluster, request));
}

}  // namespace

TEST_CASE("a branching model: stages that are no range of the file say how many layers they have") {
  // a -> b, c -> d of 3, 3, 6 and 6 ms. In file order the best two stages take 6 and 12; a with c and b with d
  // take 9 each: (4 + 1) * 9 ms.
  const Profile profile = make_profile(
      {{{1, 2, 0, 0, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}, {2, 4, 0, 0, 0, 0, 0}, {2, 4, 0, 0, 0, 0, 0}},
       {{0, 1}, {0, 2}, {1, 3}, {2, 3}},
       {1}});
  PlanRequest request = two_stages("1f1b", 4);
  request.replicas = {1, 1};
  const Explanation why = explained(profile, make_cluster(2), request);
  CHECK(why.step.count() == exactly(0.045));
  CHECK(why.parts.compute.count() == exactly(0.036));
  CHECK(why.parts.bubble.count() == exactly(0.009));
  check_says(why, "Chosen: 1f1b, layers 2|2 on replicas 1-1, 4 micro-batches: 45 ms per step");
  check_says(why, "Bottleneck: stage 0 (a .. c, 2 layers), busy 36 ms of every step (80.0 %).\n");
  check_says(why, "  stage 1 (b .. d, 2 layers) is busy as long\n");
  // The bound: all four micro-batches of a stage of 9 ms, and the way through the other.
  check_says(why, "How sure: proven, no plan of the searched family takes less than 45 ms.\n");
}

TEST_CASE("two nodes: the card that all replicas of a node share is named as the bottleneck") {
  // 1 + 1 ms a layer, 6 MB each way, two replicas a stage, each stage on its own node: four messages of 6 ms
  // leave one card, a replica computes 2 * 2.
  const Profile profile = make_profile({{{1, 1, 0, 6'000'000, 0, 0, 0}, {1, 1, 0, 0, 0, 0, 0}}, {}, {1}});
  const Cluster cluster =
      nested_cluster(std::vector<LevelSpec>{{2, BytesPerSecond(8e9)}, {2, BytesPerSecond(1e9)}},
                     DeviceKind::cpu, Seconds(0), {});
  PlanRequest request = two_stages("1f1b", 4);
  request.replicas = {2, 2};
  request.placement = Placement::packed;
  const Explanation why = explained(profile, cluster, request);
  check_says(why, "Bottleneck: the network card");
  CHECK(why.loads[why.bottleneck].busy.count() == exactly(0.024));
  check_says(why, "  stage 0 (a) is busy 4 ms, 20 ms (83.3 %) less\n");
  CHECK(why.parts.compute.count() == exactly(0.004));
  check_says(why, "The links limit it: the largest part is messages and all-reduces.\n");

  // Both levels twice as fast.
  REQUIRE(why.changes.size() == 2);
  CHECK(why.changes[1].change == "twice the bandwidth");
  Cluster faster = cluster;
  for (Level& level : faster.levels) level.bandwidth.value *= 2;
  CHECK(*why.changes[1].step == replanned(profile, faster, request).predicted.step);
  CHECK(*why.changes[1].step < why.step);
}

TEST_CASE("plans that read the same are listed once") {
  // One replica on each of four devices, or on two of them: which ones, and in which order, does not show.
  const Profile profile = make_profile({{{1, 2, 1'000'000, 0, 0, 0, 0}}, {}, {1}});
  const Cluster cluster =
      nested_cluster(std::vector<LevelSpec>{{2, BytesPerSecond(8e9)}, {2, BytesPerSecond(1e9)}},
                     DeviceKind::cpu, Seconds(0), {});
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(4);
  request.top = 20;
  const Plan plan = replanned(profile, cluster, request);
  std::vector<std::tuple<std::string, std::string, double, std::int64_t>> rows{
      {plan.schedule.name, replicas_text(plan), plan.predicted.step.count(),
       plan.predicted.workers[0].memory.peak.value}};
  for (const Alternative& other : plan.alternatives)
    rows.emplace_back(other.schedule, other.replicas, other.step.count(), other.peak.value);
  CHECK(rows.size() > 2);  // those on four, two and one devices at least
  std::ranges::sort(rows);
  CHECK(std::ranges::adjacent_find(rows) == rows.end());
}

TEST_CASE("an asynchronous plan: the slow stage is never idle, and a replica of it helps") {
  // Stages of 2 + 4 and 1 + 2 ms, an update after every micro-batch: one every 6 ms. With the slow stage on two
  // devices one every 3.
  const Profile profile = make_profile({{{2, 4, 0, 0, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}}, {}, {1}});
  const Explanation why = explained(profile, make_cluster(2), two_stages("pipedream", 1));
  CHECK(why.parts.compute.count() == exactly(0.006));
  CHECK(why.parts.bubble == Seconds{});
  check_says(why, "Chosen: pipedream, layers 1|1 on replicas 1-1, 1 micro-batch: 6 ms per step");
  check_says(why, "Bottleneck: stage 0 (a), busy 6 ms of every step (100.0 %).\n");
  check_says(why, "  stage 1 (b) is busy 3 ms, 3 ms (50.0 %) less\n");
  check_says(why, "Compute limits it");
  check_says(why, "How sure: proven, no plan of the searched family takes less than 6 ms.\n");
  check_says(why,
             "  one more device (3 in all)  3 ms, 50.0 % faster: pipedream, layers 1|1 on replicas 2-1, 1 "
             "micro-batch\n");
  check_silent(why, "twice the micro-batches");  // pipedream has one per update
  check_silent(why, "Hint");
}

TEST_CASE("devices that would be enough are counted in GPUs and nodes") {
  // Two groups of four GPUs, a node each, with 25 MB a GPU. Three layers of 8 MB of weights and as many of
  // gradients: one layer a group fits, so three groups do.
  Profile profile = make_profile({std::vector<test::LayerRow>(3, {1, 2, 8'000'000, 0, 0, 0, 0}), {}, {1}});
  profile.tensor_degree = 4;
  Cluster cluster = make_cluster(2);
  for (Device& device : cluster.devices) device.node = number(device.id) == 0 ? "a" : "b";
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(4);
  request.schedule = "1f1b";
  request.memory_limit = Bytes(25'000'000);
  const auto remedy = [&](const PlanRequest& asked) {
    return std::get<Infeasible>(make_plan(profile, cluster, asked)).remedy;
  };
  CHECK(remedy(request) == "12 GPUs (3 nodes)");
  profile.tensor_degree = 1;
  CHECK(remedy(request) == "3 devices (3 nodes)");
  cluster = make_cluster(2);
  CHECK(remedy(request) == "3 devices");
}

TEST_CASE("twice the bandwidth is that of measured all-reduces, too") {
  // Two replicas of a layer of 40 MB: 40 ms of the step are an all-reduce that was measured at 1 GB/s.
  const Profile profile = make_profile({{{40, 60, 40'000'000, 1000, 0, 0, 0}}, {}, {1}});
  Cluster cluster = make_cluster(2);
  cluster.levels.front().all_reduce.emplace().bandwidth = BytesPerSecond(1e9);
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(2);
  request.schedule = "1f1b";
  request.replicas = {2};
  const Explanation why = explained(profile, cluster, request);
  CHECK(why.step.count() == exactly(0.14));
  REQUIRE(why.changes.size() >= 2);
  CHECK(why.changes[1].change == "twice the bandwidth");
  REQUIRE(why.changes[1].step);
  CHECK(why.changes[1].step->count() == exactly(0.12));
  // Bytes beyond the caches, too.
  cluster.levels.front().all_reduce->beyond = BytesPerSecond(1e9);
  const MeasuredAllReduce faster = *with_bandwidth(cluster, 2).levels.front().all_reduce;
  CHECK(faster.bandwidth.value == 2e9);
  CHECK(faster.beyond.value == 2e9);
}

TEST_CASE("where nodes hold several devices, one more is a node, also for trainers that want equal nodes") {
  // Twelve equal layers without messages: of four devices three layers each, of six two.
  const Profile profile = make_profile({std::vector<test::LayerRow>(12, {1, 2, 0, 0, 0, 0, 0}), {}, {1}});
  const Cluster cluster =
      nested_cluster(std::vector<LevelSpec>{{2, BytesPerSecond(1e12)}, {2, BytesPerSecond(1e12)}},
                     DeviceKind::cpu, Seconds(0), {});
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(60);
  request.schedule = "1f1b";
  request.max_replicas = 1;
  for (const bool even : {false, true}) {
    CAPTURE(even);
    request.even_nodes = request.even_replicas = even;
    const Explanation why = explained(profile, cluster, request);
    CHECK(why.step.count() == exactly(0.567));  // (60 + 3) * 9 ms
    REQUIRE_FALSE(why.changes.empty());
    CHECK(why.changes[0].change == "one more node of 2 devices (6 in all)");
    REQUIRE(why.changes[0].step);
    CHECK(why.changes[0].step->count() == exactly(0.39));  // (60 + 5) * 6 ms
  }
  CHECK(has_equal_nodes(with_one_more(cluster)));
  // Of a single node whose document says how nodes would be joined, as of two.
  Cluster one = without_single_groups(nested_cluster(
      std::vector<LevelSpec>{{2, BytesPerSecond(1e12)}, {1, BytesPerSecond(1e9), 2}}, DeviceKind::cpu, {}, {}));
  CHECK(one.levels.size() == 1);
  const Explanation why = explained(profile, one, request);
  REQUIRE_FALSE(why.changes.empty());
  CHECK(why.changes[0].change == "one more node of 2 devices (4 in all)");
  CHECK(with_one_more(one).levels.back().bandwidth.value == 1e9);
  CHECK(with_one_more(one).levels.front().cards == 2);
  CHECK(with_one_more(with_groups(one, 2)).levels.front().bandwidth.value == 1e9);
  CHECK_FALSE(first_devices(one, 1).copies);
  CHECK(with_one_more(make_cluster(3)) == with_one_more_device(make_cluster(3)));
}

TEST_CASE("a limit that nothing comes near does not limit a plan, whatever other plan is found without it") {
  // Eight blocks and a head of another length behind links of 20 MB/ms: schedules of several stages per worker
  // compete.
  std::vector<test::LayerRow> rows(8, {4, 8, 50'000'000, 20'000'000, 40'000'000, 0, 0});
  rows.push_back({3, 5, 60'000'000, 1'000'000, 10'000'000, 0, 0});
  const Profile profile = make_profile({rows, {}, {1, 2, 4}});
  for (const int devices : {2, 3, 4}) {
    const Cluster cluster = flat_cluster(devices, DeviceKind::cpu, BytesPerSecond(2e10), Seconds(0), {});
    PlanRequest request;
    request.mini_batch = 16;
    request.memory_limit = Bytes(std::int64_t{1} << 50);
    const Plan limited = replanned(profile, cluster, request);
    check_silent(explain(limited, profile, cluster, request), "Memory limits");
  }
}

TEST_CASE("nothing fits: the stage, what it lacks, and a change that was planned") {
  // Two layers that keep 10 MB a micro-batch, one stage each, four micro-batches: gpipe holds 40 MB on either,
  // 1f1b two micro-batches on the first, 20 MB.
  const Profile profile =
      make_profile({{{1, 2, 0, 0, 10'000'000, 0, 0}, {1, 2, 0, 0, 10'000'000, 0, 0}}, {}, {1}});
  PlanRequest request = two_stages("gpipe", 4);
  request.replicas = {1, 1};
  request.memory_limit = Bytes(25'000'000);
  const auto none = std::get<Infeasible>(make_plan(profile, make_cluster(2), request));
  CHECK(none.reason ==
        "does not fit: stage 0 of 2 (a) needs 40000000 bytes (38.1 MiB) on cpu:0 in the best attempt, "
        "15000000 "
        "more than the limit of 25000000 bytes (23.8 MiB); smallest feasible limit 40000000 bytes (38.1 MiB)");
  CHECK(none.remedy == "--schedule 1f1b, or --recompute auto");
  request.schedule = "1f1b";
  CHECK(replanned(profile, make_cluster(2), request).predicted.workers[0].memory.peak == Bytes(20'000'000));
}

}  // namespace pp::plan::explain_cases_test

TEST_SUITE_END();

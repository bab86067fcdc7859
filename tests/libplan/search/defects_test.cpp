// What went wrong in published planners, each shown not to happen here. Rows with a test of their own: 2
// peers/pipedream_test, 5 ordered_candidates_test and peers/pipedream_test, 6 and 17 planner_test, 7
// any_order_test, 8 bottleneck_test and joint_test, 10 apps/plan_must_handle_test and
// apps/plan_errors_test, 12 interop/piper_json_test, 13 ../cost/chain_test (relay), 14
// ../cost/covering_knapsack_test, 16 joint_test (baselines), peers/dapple_test, apps/plan_must_handle_test.
#include <algorithm>
#include <sstream>

#include "libplan/answer/make_plan.h"
#include "libplan/peers/pipedream_text.h"
#include "libplan/request/device_orders.h"
#include "libplan/search/exact/bottleneck.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/graphs.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/test_data.h"

#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/defects");

namespace pp::plan::defects_test {
namespace {

using test::make_cluster;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

PlanRequest request_of(int micro_batches) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(micro_batches);
  return request;
}

Plan planned(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  auto result = make_plan(profile, cluster, request);
  if (const auto* none = std::get_if<Infeasible>(&result)) FAIL(none->reason);
  return std::get<Plan>(std::move(result));
}

Cluster four_devices(const Profile& profile, double bandwidth) {
  return flat_cluster(4, profile.device.kind, BytesPerSecond(bandwidth), Seconds(0), Bytes(0));
}

/// The profile in PipeDream's text form.
std::string pipedream_text(const Profile& profile) {
  std::ostringstream text;
  text.precision(17);
  std::string edges;
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    const LayerProfile& layer = profile.layers[i];
    const LayerPoint& point = layer.points.front();
    text << layer.name << " -- layer -- forward_compute_time=" << point.forward.median.count() * 1e3
         << ", backward_compute_time=" << point.backward.median.count() * 1e3
         << ", activation_size=" << point.output.value << ", parameter_size=" << layer.parameters.value << '\n';
    for (const std::string& producer : profile.model.layers[i].inputs)
      edges += "\t" + producer + " -- " + layer.name + "\n";
  }
  return text.str() + edges;
}

/// Node lines of PipeDream's text in another order, the edges behind them.
std::string shuffled(const std::string& text, std::uint64_t seed) {
  std::vector<std::string> nodes;
  std::string edges;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('\t'))
      edges += line + '\n';
    else
      nodes.push_back(line + '\n');
  }
  test::Random random(seed);
  for (int i = static_cast<int>(nodes.size()) - 1; i > 0; --i)
    std::swap(nodes[at(i)], nodes[at(random.integer(0, i))]);
  std::string result;
  for (const std::string& node : nodes) result += node;
  return result + edges;
}

}  // namespace

TEST_CASE("1: data parallelism and last stages count against a memory limit, too") {
  const Profile profile = pp::test::peer_profile("vgg16");
  for (const std::string schedule : {"auto", "1f1b", "pipedream"}) {
    PlanRequest request = request_of(schedule == "pipedream" ? 1 : 8);
    request.schedule = schedule;
    request.memory_limit = Bytes(1);
    const auto result = make_plan(profile, four_devices(profile, 1e9), request);
    REQUIRE(std::holds_alternative<Infeasible>(result));
    CHECK(std::get<Infeasible>(result).reason.starts_with("does not fit: layer "));
  }
}

TEST_CASE("3: activations are never free: at 1 kB/s one device, nothing else") {
  const Profile profile = pp::test::peer_profile("vgg16");
  PlanRequest request = request_of(8);
  request.force_units = true;
  const Plan plan = planned(profile, four_devices(profile, 1e3), request);
  CHECK(plan.stages.size() == 1);
  CHECK(plan.workers.size() == 1);
}

TEST_CASE("4: the only sender pays the whole cut, however many receive") {
  // Six micro-batches of 4 MB leave worker 0 in 4 ms each, whether to one worker or in turn to three.
  const Profile profile =
      test::make_profile({{{0.5, 0.5, 0, 4'000'000, 0, 0, 0}, {3, 3, 0, 0, 0, 0, 0}}, {}, {1}});
  for (const int receivers : {1, 2, 3}) {
    PlanRequest request = request_of(6);
    request.schedule = "1f1b";
    request.cuts = {1};
    request.replicas = {1, receivers};
    const Plan plan = planned(profile, make_cluster(4), request);
    std::int64_t sent = 0;
    for (const LinkPrediction& link : plan.predicted.links)
      sent += link.from == WorkerId{0} ? link.bytes_per_step.value : 0;
    CHECK(sent == 24'000'000);
    CHECK(plan.predicted.step.count() >= 0.024);
  }
}

TEST_CASE("9: the order of the node lines does not change the objective") {
  for (const char* name : {"gnmt", "resnet50"}) {
    const std::string text = pipedream_text(pp::test::peer_profile(name));
    std::vector<double> steps;
    for (const std::uint64_t seed : {1, 2, 3}) {
      const Profile profile = import_pipedream(shuffled(text, seed), name, 1);
      PlanRequest request = request_of(1);
      request.schedule = "pipedream";
      const Plan plan = planned(profile, four_devices(profile, 1e9), request);
      steps.push_back(plan.certificate.lower_bound.count());
      CHECK(plan.certificate.lower_bound.count() == exactly(steps.front()));
    }
  }
}

TEST_CASE("11: no fit names layer or stage and bytes; node ids may be any, and large graphs are ordered") {
  const Profile profile = pp::test::peer_profile("resnet50_training");
  PlanRequest request = request_of(2);
  request.memory_limit = Bytes(profile.device.memory.value / 4);
  const Cluster cluster = flat_cluster(2, profile.device.kind, BytesPerSecond(1e9), Seconds(0), Bytes(0));
  const auto result = make_plan(profile, cluster, request);
  REQUIRE(std::holds_alternative<Infeasible>(result));
  CHECK(std::get<Infeasible>(result).short_by > Bytes(0));
  CHECK(std::get<Infeasible>(result).reason.starts_with("does not fit: "));
  // A ladder of 2000 layers: each reads the last two. Every order is topological and has all of them.
  test::ProfileSpec spec;
  spec.layers.assign(2000, {1, 2, 0, 1000, 0, 0, 0});
  for (int l = 1; l < 2000; ++l) {
    spec.edges.emplace_back(l - 1, l);
    if (l > 1) spec.edges.emplace_back(l - 2, l);
  }
  const PlanGraph graph = make_graph(test::make_profile(spec));
  const std::vector<LinearOrder> orders = linear_orders(graph, std::vector<std::int64_t>(2000, 1000));
  REQUIRE(orders.size() == 1);  // the chain in it leaves no choice
  CHECK(std::ranges::is_sorted(orders.front().layers));
  CHECK(orders.front().layers.size() == 2000);
}

TEST_CASE("13: a tensor that three layers of a stage read is sent once") {
  // a -> b, c, d -> e; the cut behind a carries 4 MB, not 12.
  const Profile profile = test::make_profile({{{1, 2, 0, 4'000'000, 0, 0, 0},
                                               {1, 2, 0, 0, 0, 0, 0},
                                               {1, 2, 0, 0, 0, 0, 0},
                                               {1, 2, 0, 0, 0, 0, 0},
                                               {1, 2, 0, 0, 0, 0, 0}},
                                              {{0, 1}, {0, 2}, {0, 3}, {1, 4}, {2, 4}, {3, 4}},
                                              {1}});
  PlanRequest request = request_of(2);
  request.cuts = {1};
  const Plan plan = planned(profile, make_cluster(2), request);
  REQUIRE(plan.predicted.edges.size() == 1);
  CHECK(plan.predicted.edges.front() ==
        StageEdge{StageId{0}, StageId{1}, Bytes(4'000'000), Bytes(4'000'000), 1, 1});
}

TEST_CASE("15: the general search charges the all-reduce, so hybrids with three stages win") {
  // Layer 0 takes 5, layers 1-2 on one device 5 (two would reduce 24), layers 3-4 on two (8 + 1)/2.
  const test::TextbookCost cost({5, 2, 3, 1, 7}, {0, 12, 12, 1, 0}, {0, 0, 2, 1, 3, 0});
  SearchSpace space;
  space.layers = 5;
  space.devices = 4;
  const BottleneckResult best = search_bottleneck(space, cost);
  CHECK(best.value == exactly(5.0));
  CHECK(best.partition == Partition{{0, 1, 1}, {1, 3, 1}, {3, 5, 2}});
  double limited = std::numeric_limits<double>::infinity();
  test::for_each_partition(space, [&](const Partition& partition) {
    const bool straight = device_count(partition) == static_cast<int>(partition.size());
    if (partition.size() <= 2 || straight)
      limited = std::min(limited, largest_load(partition, space.layers, cost));
  });
  CHECK(limited == exactly(7.0));
}

TEST_CASE("16: a limit applies to every strategy, and whole weights count once") {
  // Two layers of 12 MB of state each: one stage of both does not fit 20 MB, one stage each does.
  const Profile profile =
      test::make_profile({{{1, 2, 4'000'000, 0, 0, 0, 0}, {1, 2, 4'000'000, 0, 0, 0, 0}}, {}, {1}});
  PlanRequest request = request_of(4);
  request.memory_limit = Bytes(20'000'000);
  const Plan plan = planned(profile, make_cluster(2), request);
  CHECK(plan.stages.size() == 2);
  for (const StageCosts& stage : plan.predicted.stages) CHECK(stage.weights == Bytes(4'000'000));
  request.replicas = {2};
  CHECK(std::holds_alternative<Infeasible>(make_plan(profile, make_cluster(2), request)));
}

}  // namespace pp::plan::defects_test

TEST_SUITE_END();

#include "libplan/search/improve/stage_moves.h"

#include "libplan/answer/make_plan.h"
#include "libplan/search/finalist/simulate_finalist.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/graphs.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/search/improve/stage_moves");

namespace pp::plan::stage_moves_test {
namespace {

using test::for_each_staging;
using test::make_cluster;
using test::make_profile;
using test::Random;
using test::random_graph;
using test::Stages;

doctest::Approx exactly(double value) { return doctest::Approx(value).epsilon(1e-9); }

PlanRequest request_of(const std::string& schedule, int micro_batches) {
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(micro_batches);
  request.schedule = schedule;
  return request;
}

Plan planned(const Profile& profile, const Cluster& cluster, const PlanRequest& request) {
  auto result = make_plan(profile, cluster, request);
  if (const auto* none = std::get_if<Infeasible>(&result)) FAIL(none->reason);
  return std::get<Plan>(std::move(result));
}

/// source -> a, b -> sink.
Profile diamond() {
  return make_profile(
      {std::vector<test::LayerRow>(4, {1, 2, 0, 0, 0, 0, 0}), {{0, 1}, {0, 2}, {1, 3}, {2, 3}}, {1}});
}

/// The least simulated step of all plans with `stages` stages of one device, by stagings as cuts of their
/// order.
double best_of_all(const Profile& profile, const Cluster& cluster, const PlanRequest& request, int stages) {
  double best = 1e9;
  for_each_staging(make_graph(profile), stages, [&](const Stages& sets) {
    PlanRequest fixed = request;
    for (const std::vector<int>& set : sets) {
      if (!fixed.layer_order.empty()) fixed.cuts.push_back(static_cast<int>(fixed.layer_order.size()));
      fixed.layer_order.insert(fixed.layer_order.end(), set.begin(), set.end());
    }
    fixed.replicas.assign(at(stages), 1);
    best = std::min(best, planned(profile, cluster, fixed).predicted.step.count());
  });
  return best;
}

}  // namespace

TEST_CASE("a layer moves over a cut together with what depends on it in its stage") {
  const PlanGraph graph = make_graph(diamond());
  const StageShape shape{{{0, 1}, {2, 3}}, {1, 1}, {}};
  using Layers = std::vector<int>;
  CHECK(moving_layers(graph, shape, 1, 0, 1) == Layers{1});  // its reader 3 is there
  CHECK(moving_layers(graph, shape, 2, 1, 0) == Layers{2});  // its source 0 is there
  CHECK(moving_layers(graph, shape, 0, 0, 1).empty());       // with its reader 1 the stage would be empty
  CHECK(moving_layers(graph, shape, 2, 0, 1).empty());       // not in that stage
  const StageShape wide{{{0, 1, 2, 3}, {}}, {1, 1}, {}};
  CHECK(moving_layers(graph, wide, 1, 0, 1) == Layers{1, 3});
  const StageShape late{{{}, {0, 1, 2, 3}}, {1, 1}, {}};
  CHECK(moving_layers(graph, late, 2, 1, 0) == Layers{2, 0});
}

TEST_CASE("layers that share weights, or are of one block, move together or not at all") {
  PlanGraph graph = make_graph(diamond());
  graph.tied = {{2, 3}};
  const StageShape shape{{{0, 1, 2, 3}, {}}, {1, 1}, {}};
  using Layers = std::vector<int>;
  CHECK(moving_layers(graph, shape, 3, 0, 1) == Layers{3, 2});
  CHECK(moving_layers(graph, shape, 1, 0, 1) == Layers{1, 3, 2});  // its reader 3, and that one's group
  CHECK(moving_layers(graph, shape, 0, 0, 1).empty());             // nothing would be left
  graph.tied.clear();
  graph.blocks = {{0, 1}};
  CHECK(moving_layers(graph, shape, 1, 0, 1).empty());  // 0, and with it all that reads it
}

TEST_CASE("a third micro-batch in flight hides the wait of the first stage") {
  // Stages of 2 + 4 and 1 + 2 ms, M = 4, windows 2 and 1: stage 0 runs F0 F1 (4 ms) and waits for stage 1,
  // which runs F0 from 2 and B0 until 5: 25 ms. With F2 in front of B0 it never waits: 4 * 6 = 24.
  const Profile profile = make_profile({{{2, 4, 0, 0, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}}, {}, {1}});
  PlanRequest request = request_of("1f1b", 4);
  request.stages = 2;
  const Plan plan = planned(profile, make_cluster(2), request);
  CHECK(plan.predicted.step.count() == exactly(0.024));
  CHECK(to_text(plan.workers[0].program.program).starts_with("F0.0 F0.1 F0.2 B0.0"));
  CHECK(plan.context.at("window") == "3,1");
  request.window = WindowRule::published;
  CHECK(planned(profile, make_cluster(2), request).predicted.step.count() == exactly(0.025));
}

TEST_CASE("no room for a third micro-batch: the window stays") {
  // 10 bytes saved per micro-batch, nothing else: 20 are enough for two in flight.
  const Profile profile = make_profile({{{2, 4, 0, 0, 10, 0, 0}, {1, 2, 0, 0, 10, 0, 0}}, {}, {1}});
  PlanRequest request = request_of("1f1b", 4);
  request.stages = 2;
  request.memory_limit = Bytes(29);
  CHECK(planned(profile, make_cluster(2), request).predicted.step.count() == exactly(0.025));
  request.memory_limit = Bytes(30);
  CHECK(planned(profile, make_cluster(2), request).predicted.step.count() == exactly(0.024));
}

TEST_CASE("given cuts, replicas and windows are kept") {
  const Profile profile =
      make_profile({{{2, 4, 0, 0, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}, {1, 2, 0, 0, 0, 0, 0}}, {}, {1}});
  PlanRequest request = request_of("1f1b", 4);
  request.cuts = {2};
  request.replicas = {1, 1};
  request.window = WindowRule::win;
  const Plan plan = planned(profile, make_cluster(3), request);
  CHECK(stages_text(plan) == "2|1");
  CHECK(replicas_text(plan) == "1-1");
  CHECK(plan.context.at("window") == "win");
}

TEST_CASE("a device without work becomes a replica of the slowest stage") {
  // 1 + 2 and 2 + 4 ms, four micro-batches. One device each: 1 + 4 x 6 + 2 = 27 ms. Two replicas of the second
  // stage end micro-batches at 7, 8, 13 and 14 ms, and the first stage's backwards at 9, 11, 15 and 17.
  const Profile profile = make_profile({{{1, 2, 0, 0, 0, 0, 0}, {2, 4, 0, 0, 0, 0, 0}}, {}, {1}});
  const PlanRequest request = request_of("1f1b", 4);
  const PlanGraph graph = make_graph(profile);
  const PricedModel model = price_model(profile, std::vector(4, 1), {});
  const Cluster cluster = make_cluster(4);
  const PricingContext context{graph, model, cluster, {}, 0};
  const auto improved = [&](int devices) {
    Finalist finalist;
    finalist.partition = {{0, 1, 1}, {1, 2, 1}};
    finalist.order = {0, 1};
    finalist.micro_batches = 4;
    finalist.schedule = &require_schedule("1f1b");
    finalist.devices = {0, 1};
    simulate_finalist(finalist, context, request);
    std::int64_t operations = 1'000'000;
    improve_stages(finalist, context, request, devices, operations);
    CHECK(operations < 1'000'000);
    return finalist;
  };
  CHECK(improved(2).prediction.step.count() == exactly(0.027));
  const Finalist three = improved(3);
  CHECK(replicas_of(three.partition) == std::vector{1, 2});
  CHECK(three.devices == std::vector{0, 1, 2});
  CHECK(three.prediction.step.count() == exactly(0.017));
}

TEST_CASE("random graphs: valid stages, and rarely slower than the best of all") {
  Random random(31);
  int optimal = 0;
  constexpr int kRounds = 60;
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    const Profile profile = random_graph(random, random.integer(4, 7));
    const int stages = random.integer(2, 3);
    PlanRequest request = request_of("gpipe", 4);
    request.stages = stages;
    request.replicas.assign(at(stages), 1);
    const Plan plan = planned(profile, make_cluster(3), request);
    check_plan(plan);
    const double best = best_of_all(profile, make_cluster(3), request, stages);
    CHECK(plan.predicted.step.count() >= best * (1 - 1e-10));
    CHECK(plan.predicted.step.count() <= best * 1.15);
    optimal += plan.predicted.step.count() <= best * (1 + 1e-10) ? 1 : 0;
  }
  MESSAGE("optimal in " << optimal << " of " << kRounds);
  CHECK(optimal >= kRounds * 8 / 10);
}

TEST_CASE("moves keep a given order of the layers") {
  // Layers that read nothing of each other, in the reverse of the file's order: of three stages the first and
  // the last are the lightest, and moving a layer past the middle one would help.
  test::ProfileSpec spec;
  for (const double ms : {5, 1, 7, 2, 6, 3, 4}) spec.layers.push_back({ms, 2 * ms, 0, 0, 0, 0, 0});
  for (int l = 1; l < 7; ++l) spec.edges.emplace_back(0, l);
  const Profile profile = make_profile(spec);
  PlanRequest request = request_of("1f1b", 8);
  request.layer_order = {0, 6, 5, 4, 3, 2, 1};
  request.stages = 4;
  const Plan plan = planned(profile, make_cluster(4), request);
  std::size_t next = 0;
  for (const Stage& stage : plan.stages) {
    std::vector<std::string> expected;
    for (std::size_t i = 0; i < stage.layers.size(); ++i)
      expected.push_back(profile.layers[at(request.layer_order[next++])].name);
    std::ranges::sort(expected);
    std::vector<std::string> layers = stage.layers;
    std::ranges::sort(layers);
    CHECK(layers == expected);
  }
}

}  // namespace pp::plan::stage_moves_test

TEST_SUITE_END();

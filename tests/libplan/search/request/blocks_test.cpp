#include "libplan/request/shapes.h"

#include "libplan/answer/make_plan.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

TEST_SUITE_BEGIN("libplan/request/blocks");

namespace pp::plan::blocks_test {
namespace {

/// Embedding, three blocks of two layers, head.
Profile blocks() {
  test::ProfileSpec spec;
  for (const double ms : {1., 2., 4., 3., 5., 4., 6., 2.})
    spec.layers.push_back({.forward_ms = ms, .backward_ms = 2 * ms, .parameters = 1000, .output = 100});
  Profile profile = test::make_profile(spec);
  const std::vector<std::string> names{
      "model.embed",        "model.layers.0.attn", "model.layers.0.mlp", "model.layers.1.attn",
      "model.layers.1.mlp", "model.layers.2.attn", "model.layers.2.mlp", "head"};
  for (std::size_t l = 0; l < names.size(); ++l) {
    profile.layers[l].name = profile.model.layers[l].name = names[l];
    if (l > 0) profile.model.layers[l].inputs = {names[l - 1]};
  }
  profile.model.outputs = {names.back()};
  profile.model_hash = model_hash(profile.model);
  return profile;
}

std::vector<std::size_t> sizes(const Plan& plan) {
  std::vector<std::size_t> sizes;
  for (const Stage& stage : plan.stages) sizes.push_back(stage.layers.size());
  return sizes;
}

}  // namespace

TEST_CASE("a block's name ends with its first number, or has so many parts") {
  CHECK(block_of("model.layers.3.mlp.up_proj") == "model.layers.3");
  CHECK(block_of("layer1.0.conv1") == "layer1.0");
  CHECK(block_of("features.12") == "features.12");
  CHECK(block_of("block3.attention") == "block3");  // as the native families name theirs
  CHECK(block_of("head") == "");
  CHECK(block_of("conv2d") == "");  // a number within a part is none
  CHECK(block_of("model.layers.3.mlp.up_proj", 1) == "model");
  CHECK(block_of("layer1.0.conv1", 2) == "layer1.0");
  CHECK(block_of("head", 2) == "head");
}

TEST_CASE("layers in front of the first block stay together, as do those behind the last") {
  PlanGraph graph;
  for (const char* name : {"embed", "scale", "h.0.attn", "h.0.mlp", "between", "h.1", "norm", "head"})
    graph.layers.push_back({.name = name});
  CHECK(blocks_of(graph, 0) == std::vector<std::vector<int>>{{0, 1}, {2, 3}, {6, 7}});
  for (GraphLayer& layer : graph.layers) layer.name = "plain";
  CHECK(blocks_of(graph, 0).empty());  // nowhere to cut would be no answer
}

TEST_CASE("stages begin at blocks only, and are the best of those") {
  const Profile profile = blocks();
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(8);
  request.schedule = "1f1b";
  request.stages = 3;
  request.max_replicas = 1;
  const Cluster cluster = test::make_cluster(3, 0, 1e12);
  // Forwards 1 | 2 4 | 3 5 | 4 6 | 2. Freely: 1 2 4 | 3 5 | 4 6 2 is 7, 8, 12, and 1 2 4 3 | 5 4 | 6 2 is 10,
  // 9, 8.
  CHECK(sizes(std::get<Plan>(make_plan(profile, cluster, request))) == std::vector<std::size_t>{4, 2, 2});
  // Between blocks: 7, 8 and 10 + 2 is the best; 1 | 2 4 3 5 | 4 6 2 has a stage of 14.
  request.cut_at = PlanRequest::CutAt{};
  const Plan plan = std::get<Plan>(make_plan(profile, cluster, request));
  CHECK(sizes(plan) == std::vector<std::size_t>{3, 2, 3});
  CHECK(plan.context.at("cut_at") == "block");
  // The same for a schedule whose boundaries move.
  request.schedule = "interleaved";
  request.stages = 1;
  request.chunks_per_worker = 3;
  CHECK(sizes(std::get<Plan>(make_plan(profile, test::make_cluster(1), request))).size() == 3);
}

TEST_CASE("cuts and counts that blocks leave no room for are refused with the way out") {
  Profile profile = blocks();
  PlanRequest request;
  request.mini_batch = request.micro_batches.emplace(8);
  request.schedule = "1f1b";
  request.cut_at = PlanRequest::CutAt{};
  const auto refusal = [&] {
    try {
      make_plan(profile, test::make_cluster(8), request);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  request.cuts = {2};
  CHECK(refusal() ==
        "cuts: boundary 2 separates layers model.layers.0.attn and model.layers.0.mlp, which are of one block; "
        "move it, or leave --cut-at out");
  request.cuts.clear();
  request.stages = 6;
  CHECK(
      refusal() ==
      "stages = 6 exceeds 5: layers of one block stay in one stage; plan fewer stages, or leave --cut-at out");
  request.stages.reset();
  request.cut_at->depth = 4;
  CHECK(refusal() == "cut_at = 4: no two layers have so many parts of their names in common; give fewer");
}

}  // namespace pp::plan::blocks_test

TEST_SUITE_END();

#include "libplan/answer/make_plan.h"

#include <vector>

#include "libplan/price/predict.h"
#include "libplan/request/machine.h"
#include "libplan/request/request.h"
#include "libprofile/core/index.h"
#include "tests/libplan/search/profiles.h"
#include "tests/support/doctest.h"

namespace pp::plan::plan_again_test {
namespace {

/// A chain of equal layers of 1 ms forward and 2 ms backward, with 100 B of weights and 10 B kept a sample.
Profile even_chain(int layers, std::vector<std::int64_t> sizes = {1, 2, 4}) {
  return test::make_profile(
      {std::vector<test::LayerRow>(at(layers), {1, 2, 100, 1, 10, 0, 0}), {}, std::move(sizes)});
}

/// Two nodes of two devices.
Cluster two_nodes() {
  return nested_cluster(std::vector<LevelSpec>{{2, BytesPerSecond(1e10)}, {2, BytesPerSecond(1e9)}},
                        DeviceKind::cpu, Seconds(1e-6), Bytes(0));
}

template <class Found>
Plan taken(Found found) {
  if (const auto* none = std::get_if<Infeasible>(&found)) FAIL(none->reason);
  return std::get<Plan>(std::move(found));
}

PlanRequest pipeline() {
  PlanRequest request;
  request.mini_batch = 8;
  request.schedule = "1f1b,gpipe";
  request.micro_batches = 4;
  request.replicas = {1, 1, 1, 1};
  return request;
}

PlanRequest pipeline_of(int stages) {
  PlanRequest request = pipeline();
  request.replicas.assign(static_cast<std::size_t>(stages), 1);
  return request;
}

TEST_SUITE("libplan/answer/plan_again") {
  TEST_CASE("devices are left out with the levels that join the others, and numbered anew") {
    const std::vector<int> second_node{2, 3};
    const Cluster left = some_devices(two_nodes(), second_node);
    REQUIRE(left.devices.size() == 2);
    CHECK(left.devices[0].node == "b");
    CHECK(number(left.devices[1].id) == 1);
    REQUIRE(left.levels.size() == 1);  // the inner one joins both
    CHECK(left.levels[0].bandwidth.value == 1e10);
    CHECK(first_devices(two_nodes(), 2).levels == left.levels);
    // A node that lost a device keeps its group for itself; one that lost all leaves none.
    const Cluster three = some_devices(two_nodes(), std::vector<int>{1, 2, 3});
    CHECK(std::vector{slot_of(three, 0), slot_of(three, 1), slot_of(three, 2)} == std::vector{0, 2, 3});
    CHECK(three.levels.size() == 2);
    CHECK_FALSE(has_empty_slots(some_devices(three, std::vector<int>{1, 2})));
  }

  TEST_CASE("what calibrated the first plan counts for the next one, at the speeds that devices have") {
    const Profile profile = even_chain(6);
    Plan before = taken(make_plan(profile, first_devices(two_nodes(), 2), pipeline_of(2)));
    REQUIRE(stages_text(before) == "3|3");
    // The first two layers take three times as long: 9 + 9 | 3 + 3 + 3 + 3 ms a micro-batch in place of 21
    // and 9.
    before.calibration = Calibration{.reports = {"report"}};
    for (const char* const layer : {"a", "b"}) before.calibration->layers.push_back({layer, 3, 3, 3, 3});
    const Plan again = taken(plan_again(before, profile, cluster_of(before), request_of(before)));
    CHECK(stages_text(again) == "2|4");
    CHECK(again.calibration == before.calibration);
    CHECK(again.profile_hash == before.profile_hash);
    require_profile(again, profile);
    // Devices have the speed that the cluster says.
    Cluster slow = cluster_of(before);
    slow.devices[1].speed = 1.0 / 3;
    const Plan on_slow = taken(plan_again(before, profile, slow, request_of(before)));
    CHECK(on_slow.predicted.step > again.predicted.step);
  }

  TEST_CASE("every option of a request comes back from its plan, but for those of one number of devices") {
    const PlanRequest free;
    const PlanRequest asked{.mini_batch = 8,
                            .micro_batches = 4,
                            .micro_batch_size = 2,
                            .schedule = "1f1b,gpipe",
                            .allow_async = true,
                            .weight_policy = WeightPolicy::stash,
                            .window = WindowRule::wide,
                            .windows = {},
                            .chunks_per_worker = 3,
                            .programs = ProgramSet(),
                            .stages = 4,
                            .max_stages = 7,
                            .cuts = {1, 2, 3},
                            .cut_at = PlanRequest::CutAt{2},
                            .layer_order = {0, 2, 1},
                            .placement = Placement::packed,
                            .max_replicas = 2,
                            .replicas = {1, 2, 1, 1},
                            .even_replicas = true,
                            .even_nodes = true,
                            .trainer = "megatron",
                            .tied = TiedWeights::copies,
                            .memory_limit = Bytes(100'000),
                            .reserve = 0.125,
                            .context_bytes = Bytes(10),
                            .recompute = RecomputeMode::automatic,
                            .recompute_extent = RecomputeExtent::first_blocks,
                            .optimizer = OptimizerName::adam,
                            .precision = Precision::mixed,
                            .shard = ShardChoice::automatic,
                            .optimizer_state_ratio = 1.5,
                            .all_reduce_overlap = 0.75,
                            .swap_bandwidth = BytesPerSecond(2e9),
                            .swap_overlap = 0.5,
                            .threads = 2,
                            .top = 3,
                            .extrapolate = true,
                            .linear_batch = true,
                            .force_units = true,
                            .observer = {}};
    Plan plan;
    plan.training.mini_batch = asked.mini_batch;
    plan.training.micro_batches = *asked.micro_batches;
    plan.training.optimizer = asked.optimizer;
    plan.training.precision = asked.precision;
    plan.schedule = {.name = "1f1b", .weight_policy = *asked.weight_policy};
    plan.stages = {{.layers = {}, .workers = {WorkerId{0}, WorkerId{1}}, .recompute = {}}};
    add_options(plan.context, asked);
    // As many names as a request has members: a new one is added here and to the context.
    const auto& [mini_batch, micro_batches, micro_batch_size, schedule, allow_async, weight_policy, window,
                 windows, chunks, programs, stages, max_stages, cuts, cut_at, layer_order, placement,
                 max_replicas, replicas, even_replicas, even_nodes, trainer, tied, memory_limit, reserve,
                 context_bytes, recompute, extent, optimizer, precision, shard, state_ratio, overlap,
                 swap_bandwidth, swap_overlap, threads, top, extrapolate, linear_batch, force_units, observer] =
        request_of(plan);
    const auto kept = [](const auto& member, const auto& given, const auto& unset) {
      return member == given && !(given == unset);
    };
#define PP_KEPT(name, member) CHECK_MESSAGE(kept(name, asked.member, free.member), #member)
    PP_KEPT(mini_batch, mini_batch);
    PP_KEPT(micro_batch_size, micro_batch_size);
    PP_KEPT(schedule, schedule);
    PP_KEPT(allow_async, allow_async);
    PP_KEPT(weight_policy, weight_policy);
    PP_KEPT(window, window);
    PP_KEPT(chunks, chunks_per_worker);
    PP_KEPT(max_stages, max_stages);
    PP_KEPT(layer_order, layer_order);
    PP_KEPT(placement, placement);
    PP_KEPT(max_replicas, max_replicas);
    PP_KEPT(even_replicas, even_replicas);
    PP_KEPT(even_nodes, even_nodes);
    PP_KEPT(trainer, trainer);
    PP_KEPT(tied, tied);
    PP_KEPT(memory_limit, memory_limit);
    PP_KEPT(reserve, reserve);
    PP_KEPT(context_bytes, context_bytes);
    PP_KEPT(recompute, recompute);
    PP_KEPT(extent, recompute_extent);
    PP_KEPT(optimizer, optimizer);
    PP_KEPT(precision, precision);
    PP_KEPT(shard, shard);
    PP_KEPT(state_ratio, optimizer_state_ratio);
    PP_KEPT(overlap, all_reduce_overlap);
    PP_KEPT(swap_bandwidth, swap_bandwidth);
    PP_KEPT(swap_overlap, swap_overlap);
    PP_KEPT(extrapolate, extrapolate);
    PP_KEPT(linear_batch, linear_batch);
    PP_KEPT(force_units, force_units);
#undef PP_KEPT
    REQUIRE(cut_at);
    CHECK(cut_at->depth == 2);
    // Of one number of devices, or of a search and not of its plan.
    CHECK_FALSE(stages);
    CHECK_FALSE(programs);
    CHECK(windows.empty());
    CHECK(cuts.empty());
    CHECK(replicas.empty());
    CHECK(threads == free.threads);
    CHECK(top == free.top);
    CHECK_FALSE(observer);
    // One of the two says it.
    CHECK_FALSE(micro_batches);
    plan.context.erase("micro_batch_size");
    CHECK(request_of(plan).micro_batches == 4);
  }

  TEST_CASE("the overlap, the trainer and the size of micro-batches are those of the next plan, too") {
    PlanRequest request = pipeline();
    request.micro_batches.reset();
    request.micro_batch_size = 2;
    request.all_reduce_overlap = 1;
    request.even_replicas = true;
    request.trainer = "torchtitan";
    const Profile profile = even_chain(8);
    const Plan before = taken(make_plan(profile, two_nodes(), request));
    const std::vector<int> first_node{0, 1};
    const Plan after =
        taken(plan_again(before, profile, some_devices(cluster_of(before), first_node), request_of(before)));
    CHECK(after.predicted.all_reduce_overlap == 1);
    for (const char* const key : {"all_reduce_overlap", "for", "even_replicas", "micro_batch_size"})
      CHECK(after.context.at(key) == before.context.at(key));
    CHECK(request_of(after).max_replicas == 1);  // it has none, so the order of its sums can be kept
  }

  TEST_CASE("an entry that is no value of its option is named") {
    Plan plan;
    const auto error = [&](const char* key, const char* text) -> std::string {
      plan.context = {{key, text}};
      try {
        request_of(plan);
      } catch (const Error& refused) {
        CHECK(refused.kind() == ErrorKind::data);
        return refused.what();
      }
      return "accepted";
    };
    for (const char* const text : {"lots", "1.5", "[1]", "true", ""})
      CHECK(error("memory_limit_bytes", text) == "context, memory_limit_bytes: \"" + std::string(text) +
                                                     "\" is no value of this option; leave the entry out");
    CHECK(error("layer_order", "3").starts_with("context, layer_order: "));
    CHECK(error("linear_batch", "1").starts_with("context, linear_batch: "));
    CHECK(error("shard", "half") ==
          "context, shard: its value: unknown name \"half\"; use one of none, optimizer, auto");
  }

  TEST_CASE("four stages become two on the node that is left, with the same schedule and micro-batches") {
    const Profile profile = even_chain(8);
    const Plan before = taken(make_plan(profile, two_nodes(), pipeline()));
    const std::vector<int> first_node{0, 1};
    const Plan after =
        taken(plan_again(before, profile, some_devices(cluster_of(before), first_node), request_of(before)));
    CHECK(stages_text(after) == "4|4");
    CHECK(after.schedule.name == before.schedule.name);
    CHECK(after.training == before.training);
    CHECK(after.profile_hash == before.profile_hash);
    CHECK(after.devices.size() == 2);
  }

  TEST_CASE("what holds for every number of devices stays: without room for the weights there is no plan") {
    PlanRequest request = pipeline();
    // Weights, gradients and momentum of 800 B each: a quarter of them fits with what it keeps, all do not.
    request.memory_limit = Bytes(1000);
    const Profile profile = even_chain(8);
    const Plan before = taken(make_plan(profile, two_nodes(), request));
    const std::vector<int> one{0};
    const auto found = plan_again(before, profile, some_devices(cluster_of(before), one), request_of(before));
    REQUIRE(std::holds_alternative<Infeasible>(found));
    CHECK_FALSE(std::get<Infeasible>(found).reason.empty());
  }

  TEST_CASE("micro-batches that leave no room give way to smaller ones") {
    // One device holds 3 * 800 B of weights, gradients and momentum. One micro-batch of 4 samples keeps
    // 8 * 4 * 10 = 320 B beside them, of 2 samples 160 B, of one 80 B.
    PlanRequest request = pipeline();
    request.mini_batch = 4;
    request.micro_batches = 1;
    request.schedule = "1f1b";
    const Profile profile = even_chain(8);
    const Plan before = taken(make_plan(profile, two_nodes(), request));
    PlanRequest tight = request_of(before);
    tight.memory_limit = Bytes(2500);
    const std::vector<int> one{0};
    const Plan after = taken(plan_again(before, profile, some_devices(cluster_of(before), one), tight));
    CHECK(after.training.micro_batches == 4);
    CHECK(after.training.mini_batch == 4);
  }

  TEST_CASE("another profile is refused") {
    const Profile profile = even_chain(8);
    const Plan before = taken(make_plan(profile, two_nodes(), pipeline()));
    CHECK_THROWS_AS(plan_again(before, even_chain(8, {1, 2}), two_nodes(), request_of(before)), Error);
  }
}

}  // namespace
}  // namespace pp::plan::plan_again_test

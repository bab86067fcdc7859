#include "libplan/interop/trainer_export.h"

#include <nlohmann/json.hpp>

#include "libplan/answer/make_plan.h"
#include "libplan/schedule/schedule.h"
#include "tests/libplan/interop/exports.h"
#include "tests/support/doctest.h"
#include "tests/support/plans.h"

TEST_SUITE_BEGIN("libplan/interop/trainer_export");

namespace pp::plan::trainer_export_test {
namespace {

using test::file;
using test::refusal;

Layer layer(const std::string& name, const std::string& op, std::vector<std::string> inputs,
            Attributes attributes = {}) {
  return {name, op, std::move(inputs), std::move(attributes), ""};
}

/// embed, then `blocks` times h.N.fc and h.N.act, then norm and head: 3 + 2 * blocks layers.
ModelGraph language(int blocks) {
  ModelGraph graph;
  graph.name = "language";
  graph.inputs = {{"tokens", {{8}, DType::int64}}};
  graph.targets = {{"next", {{8}, DType::int64}}};
  const auto width = [](std::int64_t n) { return Attributes{{"out_features", n}}; };
  graph.layers = {layer("embed", "embedding", {"tokens"},
                        {{"num_embeddings", std::int64_t{16}}, {"embedding_dim", std::int64_t{4}}})};
  for (int n = 0; n < blocks; ++n) {
    const std::string block = "h." + std::to_string(n);
    graph.layers.push_back(layer(block + ".fc", "linear", {graph.layers.back().name}, width(4)));
    graph.layers.push_back(layer(block + ".act", "gelu", {graph.layers.back().name}));
  }
  graph.layers.push_back(layer("norm", "layer_norm", {graph.layers.back().name}));
  graph.layers.push_back(layer("head", "linear", {"norm"}, width(16)));
  graph.outputs = {"head"};
  graph.loss = LossSpec{"cross_entropy", {"head", "next"}, {}};
  return graph;
}

Json modules(const TrainerExport& out) { return parse_json(file(out, "modules.json")); }

std::string torch_refusal(const ::PlanSpec& spec) {
  return refusal([&] { export_torch_pipelining(::make_plan(spec), Losses::refuse); });
}

std::string megatron_refusal(const ::PlanSpec& spec) {
  return refusal([&] { export_megatron(::make_plan(spec), Losses::refuse); });
}

std::string arguments(const ::PlanSpec& spec, Losses losses = Losses::refuse) {
  return file(export_megatron(::make_plan(spec), losses), "arguments.txt");
}

}  // namespace

TEST_CASE("torch: whole modules per stage, single ones where a module is cut, a row per worker") {
  // Layers: embed | h.0.fc h.0.act h.1.fc | h.1.act h.2.fc h.2.act norm head with cuts before 4.
  const TrainerExport out =
      export_torch_pipelining(::make_plan({.model = language(3), .cuts = {4}}), Losses::refuse);
  CHECK(modules(out) == Json{{"embed", "h.0", "h.1.fc"}, {"h.1.act", "h.2", "norm", "head"}});
  // 1F1B of two stages, four micro-batches: stage 0 holds two.
  CHECK(file(out, "schedule.csv") ==
        "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n"
        "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
  const Json settings = parse_json(file(out, "settings.json"));
  CHECK(settings["pipeline_parallel_degree"] == 2);
  CHECK(settings["data_parallel_degree"] == 1);
  CHECK(settings["micro_batches"] == 4);
  CHECK(settings["micro_batch_size"] == 2);  // 8 samples
  CHECK(settings["optimizer"] == "SGD");
  CHECK(settings["loss"] == "cross_entropy");
  CHECK(file(out, "launch.py").starts_with("#!/usr/bin/env python3\n"));
  CHECK(out.lost.empty());
}

TEST_CASE("torch: a list of modules is named by its elements, also where one stage has all of them") {
  const TrainerExport out =
      export_torch_pipelining(::make_plan({.model = language(2), .cuts = {5}}), Losses::refuse);
  CHECK(modules(out) == Json{{"embed", "h.0", "h.1"}, {"norm", "head"}});
}

TEST_CASE("torch: equal replicas are pipelines of their own, each with its micro-batches from 0") {
  const TrainerExport out = export_torch_pipelining(
      ::make_plan({.model = language(2), .cuts = {3}, .replicas = {2, 2}, .schedule = "gpipe"}),
      Losses::refuse);
  // Replica 0 has micro-batches 0 and 2 of four.
  CHECK(file(out, "schedule.csv") == "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  const Json settings = parse_json(file(out, "settings.json"));
  CHECK(settings["data_parallel_degree"] == 2);
  // Workers 0 and 1 are the replicas of stage 0, 2 and 3 of stage 1; rank 1 is the second stage of replica 0.
  Json devices = Json::array();
  for (const Json& rank : settings["ranks"]) devices.push_back(rank["device"]);
  CHECK(devices == Json{"cpu:0", "cpu:2", "cpu:1", "cpu:3"});
}

TEST_CASE("torch: several stages on a worker, also in a V, and halves of backwards") {
  const auto rows = [](const std::string& schedule) {
    const TrainerExport out = export_torch_pipelining(
        ::make_plan({.model = language(2), .cuts = {2, 3, 4}, .schedule = schedule}), Losses::refuse);
    return file(out, "schedule.csv");
  };
  // Interleaved: worker 0 has stages 0 and 2; in a V it has 0 and 3.
  CHECK(rows("interleaved").substr(0, 19) == "0F0,0F1,2F0,2F1,0F2");
  CHECK(rows("interleaved").find("3F") > rows("interleaved").find('\n'));
  const std::string v = rows("zb-v");
  CHECK(v.substr(0, v.find('\n')).find("3I0") != std::string::npos);
  CHECK(v.substr(0, v.find('\n')).find("3W0") != std::string::npos);
}

TEST_CASE("torch: what would train otherwise is refused with its reason, also when losses are allowed") {
  const ModelGraph model = language(2);
  CHECK(torch_refusal({.model = model, .cuts = {3}, .schedule = "pipedream", .micro_batches = 1}) ==
        "torch.distributed.pipelining cannot run this plan: schedule pipedream updates weights while "
        "micro-batches are in flight; plan with a synchronous one, --schedule 1f1b");
  CHECK(torch_refusal({.model = model, .cuts = {3}, .replicas = {3, 1}}) ==
        "torch.distributed.pipelining cannot run this plan: stages have unequal replicas, 3-1; plan with "
        "--schedule hybrid, or --replicas of one number");
  CHECK(torch_refusal({.model = model, .cuts = {3}, .mini_batch = 10}) ==
        "torch.distributed.pipelining cannot run this plan: 10 samples in 4 micro-batches are not of one size; "
        "plan with --micro-batches that divide the mini-batch");
  CHECK(torch_refusal({.model = model, .cuts = {3}, .replicas = {4, 4}, .mini_batch = 12, .micro_batches = 6})
            .find("6 micro-batches are not the same number for 4 replicas") != std::string::npos);
  CHECK(torch_refusal({.model = model, .cuts = {3}, .schedule = "chimera"})
            .find("the replicas are no pipelines of their own") != std::string::npos);

  ModelGraph tied = model;
  tied.layers.back() = layer("head", "linear", {"norm"}, {{"out_features", std::int64_t{16}}, {"bias", false}});
  tied.layers.back().weights_of = "embed";
  CHECK(torch_refusal({.model = tied, .cuts = {3}}).find("embed.weight has copies in several stages") !=
        std::string::npos);

  CHECK(torch_refusal({.model = tied, .cuts = {3}}).ends_with("; plan with --tied stage"));

  ModelGraph skip = model;
  skip.layers[4] = layer("h.1.act", "add", {"h.1.fc", "embed"});
  CHECK(torch_refusal({.model = skip, .cuts = {1, 3}}) ==
        "torch.distributed.pipelining cannot run this plan: h.1.act in stage 2 reads the output of embed in "
        "stage 0, which its runtime hands to the next stage only; plan with cuts that keep the two closer");
  CHECK(torch_refusal({.model = skip, .cuts = {3}}) == "");
}

TEST_CASE("torch: a stage that begins in a module's own code loses that code to the stage before") {
  ModelGraph model = language(2);
  model.layers[2].name = "h.0/2";  // what h.0 does itself behind its fc
  model.layers[2].scope = "h.0";
  model.layers[3].inputs = {"h.0/2"};
  const ::PlanSpec spec{.model = model, .cuts = {2}};
  CHECK(torch_refusal(spec) ==
        "torch.distributed.pipelining cannot say all of this plan: "
        "stage 1 begins with h.0/2, inside the code of h.0: it goes to the stage before, unless planned with "
        "--cut-at block; "
        "--lossy exports the rest");
  const TrainerExport out = export_torch_pipelining(::make_plan(spec), Losses::leave_out);
  CHECK(out.lost.size() == 1);
  CHECK(modules(out) == Json{{"embed", "h.0.fc"}, {"h.1", "norm", "head"}});
}

TEST_CASE("torch: recomputation is left out only when that is asked for") {
  const ::PlanSpec again{.model = language(2), .cuts = {3}, .recompute = {Recompute::always}};
  CHECK(torch_refusal(again).find("forwards of stage 0 do not run again: it keeps its activations") !=
        std::string::npos);
  const TrainerExport out = export_torch_pipelining(::make_plan(again), Losses::leave_out);
  CHECK(out.lost.size() == 2);
  CHECK(file(out, "schedule.csv").find('R') == std::string::npos);
}

TEST_CASE("Megatron: blocks per stage between embedding and loss") {
  // Of 2 + 3*2 + 1 layers: embed and block 0; blocks 1 and 2 with norm and head.
  CHECK(arguments({.model = language(3), .cuts = {3}}) ==
        "--pipeline-model-parallel-size 2\n"
        "--pipeline-model-parallel-layout Et|t*2L\n"
        "--num-layers 3\n"
        "--micro-batch-size 2\n"
        "--global-batch-size 8\n");
  // Four stages on two workers: the embedding alone, a block each, the last one with the head.
  CHECK(arguments({.model = language(3), .cuts = {1, 3, 5}, .schedule = "interleaved"})
            .find("--pipeline-model-parallel-size 2\n--pipeline-model-parallel-layout E|t|t|tL\n") == 0);
}

TEST_CASE("Megatron: other orders and recomputation") {
  CHECK(megatron_refusal({.model = language(3), .cuts = {3}, .schedule = "zb-h1"}) ==
        "Megatron-LM cannot say all of this plan: "
        "its 1f1b runs in another order than the plan's zb-h1, with other times and memory than predicted, "
        "unless planned with --schedule 1f1b; "
        "--lossy exports the rest");
  CHECK(
      arguments({.model = language(3), .cuts = {3}, .schedule = "zb-h1"}, Losses::leave_out).find("Et|t*2L") !=
      std::string::npos);
  CHECK(megatron_refusal({.model = language(3), .cuts = {1, 3, 5}, .schedule = "zb-v"}) ==
        "Megatron-LM cannot run this plan: stage 3 is on worker 0; it deals stages to workers in turns; plan "
        "with --schedule 1f1b or interleaved");
  Plan again = ::make_plan({.model = language(3), .cuts = {3}, .recompute = {Recompute::always}});
  again.schedule.recompute = RecomputePolicy::always;
  CHECK(file(export_megatron(again, Losses::refuse), "arguments.txt")
            .find("--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n") !=
        std::string::npos);
}

TEST_CASE("both: precision and sharded state go with the plan, or are named") {
  Plan plan = ::make_plan({.model = language(3), .cuts = {3}, .replicas = {2, 2}});
  plan.training.precision = Precision::mixed;
  plan.training.shard = Shard::optimizer;
  CHECK(file(export_megatron(plan, Losses::refuse), "arguments.txt")
            .ends_with("--bf16\n--use-distributed-optimizer\n"));
  CHECK(refusal([&] {
          export_torch_pipelining(plan, Losses::refuse);
        }).find("launch.py keeps no float32 copies of half weights; plan with --precision autocast") !=
        std::string::npos);
  plan.training.precision = Precision::autocast;
  const Json settings = parse_json(file(export_torch_pipelining(plan, Losses::refuse), "settings.json"));
  CHECK(settings["precision"] == "autocast");
  CHECK(settings["shard"] == "optimizer");
  CHECK(refusal([&] { export_megatron(plan, Losses::refuse); }).find("it has no autocast") !=
        std::string::npos);
}

TEST_CASE("Megatron: its orders have its warm-ups") {
  // By its pipeline_parallel/schedules.py rank r of p runs p - r - 1 forwards before it alternates; with v
  // chunks 2 (p - r - 1) + (v - 1) p. One forward more comes before the first backward.
  const auto forwards = [](const std::string& schedule, int ranks, int chunks, int micro_batches) {
    std::vector<int> counts;
    const ProgramSet set = program_set({.name = schedule,
                                        .replicas = std::vector<int>(at(ranks), 1),
                                        .micro_batches = micro_batches,
                                        .window = WindowRule::published,
                                        .chunks_per_worker = chunks});
    for (const Program& program : set.workers)
      counts.push_back(
          static_cast<int>(std::ranges::find(program, OpKind::backward, &Op::kind) - program.begin()));
    return counts;
  };
  CHECK(forwards("1f1b", 4, 1, 8) == std::vector{4, 3, 2, 1});
  CHECK(forwards("1f1b", 4, 1, 2) == std::vector{2, 2, 2, 1});  // no more than there are
  CHECK(forwards("interleaved", 2, 2, 4) == std::vector{5, 3});
  CHECK(forwards("interleaved", 4, 2, 8) == std::vector{11, 9, 7, 5});
  CHECK(forwards("interleaved", 4, 3, 8) == std::vector{15, 13, 11, 9});
}

TEST_CASE("Megatron: wider windows than its own are named with what closes them") {
  Plan plan = ::make_plan({.model = language(3), .cuts = {3}});
  // Stage 0 holds two of four micro-batches by 1F1B; here three: F3 moves in front of the first backward.
  plan.workers[0].program.program = parse_program("F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3 U0");
  CHECK(refusal([&] { export_megatron(plan, Losses::refuse); }).find("unless planned with --window win") !=
        std::string::npos);
}

TEST_CASE("Megatron: models that are no row of equal blocks, and cuts through one") {
  CHECK(megatron_refusal({.model = language(3), .cuts = {2}}) ==
        "Megatron-LM cannot run this plan: stage 1 begins with h.0.act, inside a block; plan with --cut-at "
        "block");
  CHECK(megatron_refusal({.model = language(3), .cuts = {8}}) ==
        "Megatron-LM cannot run this plan: norm stands behind the blocks and belongs into the last stage; "
        "plan with --cut-at block");
  CHECK(megatron_refusal({.model = language(1), .cuts = {3}})
            .find("it takes a row of two or more equal blocks (names such as") != std::string::npos);
  ModelGraph unequal = language(2);
  unequal.layers[4].op = "relu";
  CHECK(megatron_refusal({.model = unequal, .cuts = {3}})
            .find("it takes a row of two or more equal blocks (names such as") != std::string::npos);
}

TEST_CASE("all: weights that live on the host are refused") {
  Plan plan = ::make_plan({.model = language(3), .cuts = {3}, .replicas = {2, 2}});
  plan.predicted.swap.bandwidth = BytesPerSecond(1e9);
  for (const auto write : {export_torch_pipelining, export_megatron, export_megatron_bridge, export_verl,
                           export_nemo_rl, export_deepspeed, export_torchtitan, export_automodel}) {
    CHECK(refusal([&] { write(plan, Losses::leave_out); }).find(" keeps weights on the host") !=
          std::string::npos);
    CHECK(pp::test::error_of([&] { write(plan, Losses::leave_out); }, ErrorKind::data).ends_with(kLimits));
  }
}

TEST_CASE("several stages of a pipeline of one worker, which trainers would run as one, are refused") {
  const Plan plan =
      ::make_plan({.model = language(3), .cuts = {3}, .replicas = {2}, .schedule = "interleaved"});
  REQUIRE(plan.stages.size() == 2);
  REQUIRE(plan.workers.size() == 2);
  for (const auto write : {export_megatron, export_verl, export_torchtitan, export_automodel}) {
    const std::string said = refusal([&] { write(plan, Losses::leave_out); });
    CAPTURE(said);
    CHECK(
        said.ends_with("a pipeline of one worker has one stage there, the plan's has 2; give --stages with "
                       "--replicas, or 1f1b"));
  }
}

TEST_CASE("a memory limit that is no number of bytes is the plan's fault") {
  Plan plan = ::make_plan({.model = language(3), .cuts = {3}, .replicas = {2, 2}});
  plan.predicted.workers.resize(4);
  for (Device& device : plan.devices) device.memory = Bytes(80LL << 30);
  plan.context["memory_limit_bytes"] = "lots";
  CHECK(refusal([&] { export_megatron(plan, Losses::refuse); }) ==
        "context, memory_limit_bytes: \"lots\" is no value of this option; leave the entry out");
}

TEST_CASE("processes: the GPUs that the plan uses on each node") {
  Plan plan = ::make_plan({.model = language(3), .cuts = {3}, .replicas = {2, 2}});
  plan.tensor_degree = 2;
  plan.devices[2].node = plan.devices[3].node = "b";
  CHECK(detail::processes_of(plan, "test").nodes == 2);
  CHECK(detail::processes_of(plan, "test").per_node == 4);
}

}  // namespace pp::plan::trainer_export_test

TEST_SUITE_END();

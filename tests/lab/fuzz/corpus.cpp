#include "tests/lab/fuzz/corpus.h"

#include <nlohmann/json.hpp>

#include "libplan/schedule/program_text.h"
#include "libplan/search/planner.h"
#include "libprofile/model/families/families.h"
#include "tests/librun/models.h"
#include "tests/support/plans.h"

namespace pp::fuzz {
namespace {

TimeStat about(double seconds) {
  return {Seconds(seconds), Seconds(0.9 * seconds), Seconds(1.2 * seconds), 10};
}

LayerPoint point_of(const ResolvedLayer& layer, std::int64_t size) {
  const double forward =
      1e-5 + 1e-9 * static_cast<double>(layer.forward_flops.value) * static_cast<double>(size);
  LayerPoint point;
  point.micro_batch_size = size;
  point.forward = about(forward);
  point.backward = about(2 * forward);
  point.input_gradient = about(1.2 * forward);
  point.weight_gradient = about(0.8 * forward);
  for (const TensorType& output : layer.outputs)
    point.output = point.output + Bytes(size * bytes_of(output).value);
  point.saved = point.output;
  point.workspace = Bytes(1024);
  return point;
}

plan::Plan planned(const Profile& profile, int devices, plan::PlanRequest request) {
  request.mini_batch = 8;
  const Cluster cluster = flat_cluster(devices, DeviceKind::cpu, BytesPerSecond(1e9), Seconds(1e-6), Bytes(0));
  return std::get<plan::Plan>(plan::find_plan(profile, cluster, request));
}

std::vector<PlanSpec> specs() {
  const ModelGraph mlp = test::mlp(4);  // 9 layers
  const ModelGraph residual = test::residual_net();
  std::vector<PlanSpec> specs{
      {.model = test::mlp(2)},
      {.model = mlp, .cuts = {4}, .schedule = "gpipe"},
      {.model = mlp, .cuts = {2, 5}, .schedule = "1f1b"},
      {.model = mlp, .cuts = {4}, .schedule = "gpipe-reverse"},
      {.model = mlp, .cuts = {2, 4, 6}, .schedule = "interleaved"},
      {.model = mlp, .cuts = {2, 4, 6}, .schedule = "looped-bfs"},
      {.model = mlp, .cuts = {2, 4, 6}, .schedule = "zb-v"},
      {.model = mlp, .cuts = {2, 4, 6}, .schedule = "dualpipe-v"},
      {.model = mlp, .cuts = {3}, .schedule = "chimera"},
      {.model = mlp, .cuts = {3, 6}, .schedule = "zb-h1"},
      {.model = mlp, .cuts = {4}, .schedule = "zb-h2"},
      {.model = mlp, .cuts = {4}, .replicas = {2, 2}, .schedule = "hybrid"},
      {.model = mlp, .cuts = {4}, .replicas = {2, 1}, .schedule = "dapple-pa"},
      {.model = mlp, .cuts = {}, .replicas = {2}, .schedule = "data-parallel"},
      {.model = residual, .cuts = {6}, .replicas = {2, 1}, .schedule = "1f1b"},
      {.model = residual, .cuts = {3, 8}, .replicas = {1, 2, 1}, .schedule = "gpipe"},
      {.model = residual, .cuts = {4, 9}, .schedule = "1f1b", .recompute = {plan::Recompute::always}},
      {.model = residual, .cuts = {7}, .schedule = "zb-h1"},
      {.model = test::dropout_mlp(),
       .cuts = {3, 5},
       .schedule = "1f1b",
       .recompute = {plan::Recompute::except_last}},
      {.model = test::dropout_mlp(),
       .cuts = {4},
       .schedule = "gpipe",
       .rerun_layers = {"relu0", "fc1", "drop1"}},
      {.model = test::shared_mlp(), .cuts = {5}, .schedule = "1f1b"},
      {.model = test::shared_mlp(), .cuts = {3, 7}, .replicas = {1, 2, 1}, .schedule = "gpipe"},
      {.model = test::regression(), .cuts = {1}, .schedule = "1f1b", .optimizer = OptimizerName::adamw},
      {.model = test::regression(), .cuts = {1}, .schedule = "gpipe", .optimizer = OptimizerName::rmsprop},
      {.model = mlp, .cuts = {2, 5}, .schedule = "pipedream", .micro_batches = 1},
      {.model = mlp, .cuts = {4}, .replicas = {2, 1}, .schedule = "pipedream", .micro_batches = 1},
      {.model = mlp, .cuts = {2, 5}, .schedule = "vertical-sync", .micro_batches = 1},
      {.model = mlp, .cuts = {2, 5}, .schedule = "spectrain", .micro_batches = 1},
      {.model = mlp, .cuts = {2, 5}, .schedule = "xpipe", .micro_batches = 2},
      {.model = mlp, .cuts = {2, 5}, .schedule = "2bw"},
      {.model = mlp, .cuts = {4}, .replicas = {2, 2}, .schedule = "2bw"},
      {.model = mlp, .cuts = {4}, .schedule = "macrobatch"},
  };
  for (PlanSpec& spec : specs) {
    spec.dtype = DType::float64;
    spec.mini_batch = spec.micro_batches == 1 ? 4 : 8;
  }
  specs[1].mini_batch = 10;  // 3, 3, 2, 2
  return specs;
}

}  // namespace

/// Constants by formula of every kind, a frozen parameter; nobody compared it with a module.
ModelGraph masked_model() {
  return parse_model(R"({"format": "pp.model", "version": 2, "name": "masked", "verified": false,
    "inputs": [{"name": "x", "shape": [3, 4]}],
    "layers": [
      {"name": "lin", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 4}, "frozen": ["bias"]},
      {"name": "turn", "op": "aten", "inputs": ["lin"], "call": {"target": "aten::mul.Tensor",
        "arguments": {"self": {"input": 0}, "other": {"constant": "cos"}},
        "constants": [{"name": "cos", "shape": [3, 4], "formula": {"kind": "waves", "position_dim": 0,
          "function": "cos", "columns": "halves", "frequencies": [1.0, 0.01]}}],
        "outputs": [{"shape": [3, 4]}]}},
      {"name": "hide", "op": "aten", "inputs": ["turn"], "call": {"target": "aten::add.Tensor", "precision": "float32",
        "arguments": {"self": {"input": 0}, "other": {"constant": "mask"}},
        "constants": [{"name": "mask", "shape": [3, 4], "formula": {"kind": "band", "steps": [-1, 1], "high": 0,
          "inside": 0, "outside": {"number": "-inf"}}}],
        "outputs": [{"shape": [3, 4]}]}},
      {"name": "place", "op": "aten", "inputs": ["hide"], "call": {"target": "aten::add.Tensor",
        "arguments": {"self": {"input": 0}, "other": {"constant": "p"}},
        "constants": [{"name": "p", "dtype": "int64", "shape": [3, 4], "formula": {"kind": "linear", "steps": [4, 1]}}],
        "outputs": [{"shape": [3, 4]}]}}],
    "outputs": ["place"]})");
}

std::vector<ModelGraph> model_corpus() {
  return {
      masked_model(),
      test::mlp(2),
      test::dropout_mlp(),
      test::shared_mlp(),
      test::residual_net(),
      test::regression(),
      model::build_family("lenet5:image=12"),
      model::build_family("transformer:layers=1,width=8,heads=2,vocabulary=12,sequence=6,dropout=0.1,tied=1"),
      model::build_family("gnmt:layers=2,width=8,vocabulary=11,source=4,target=3")};
}

std::vector<Json> config_corpus() {
  constexpr auto kSizes =
      R"("vocab_size": 19, "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2,
    "max_position_embeddings": 64)";
  std::vector<Json> configs;
  const auto add = [&](const std::string& type, const std::string& keys) {
    configs.push_back(parse_json("{\"model_type\": \"" + type + "\", " + kSizes + ", " + keys + "}"));
  };
  add("llama", R"("intermediate_size": 12, "num_key_value_heads": 1, "rope_theta": 500.0, "mlp_bias": true,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32}, "pad_token_id": 2, "architectures": ["LlamaForCausalLM"])");
  add("llama",
      R"("intermediate_size": 12, "head_dim": 6, "rope_parameters": {"rope_type": "yarn", "factor": 4.0,
    "rope_theta": 100.0, "original_max_position_embeddings": 16, "mscale": 1.5, "mscale_all_dim": 0.5})");
  add("mistral",
      R"("intermediate_size": 12, "sliding_window": 3, "rope_scaling": {"type": "linear", "factor": 2.0})");
  add("qwen2",
      R"("intermediate_size": 12, "num_key_value_heads": 2, "use_sliding_window": true, "sliding_window": 4,
    "max_window_layers": 1, "tie_word_embeddings": true)");
  add("qwen3", R"("intermediate_size": 12, "num_key_value_heads": 2, "head_dim": 4, "attention_bias": true)");
  add("gemma2", R"("intermediate_size": 12, "num_key_value_heads": 1, "head_dim": 4, "query_pre_attn_scalar": 5,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"], "final_logit_softcapping": null)");
  add("phi3", R"("intermediate_size": 12, "partial_rotary_factor": 0.5, "pad_token_id": null)");
  add("gpt_neox", R"("intermediate_size": 12, "rotary_pct": 0.5, "use_parallel_residual": false)");
  add("opt", R"("ffn_dim": 12, "word_embed_proj_dim": 6, "do_layer_norm_before": false, "dropout": 0.1)");
  add("smollm3", R"("intermediate_size": 12, "num_key_value_heads": 2, "no_rope_layers": [1, 0, 1],
    "pad_token_id": 3)");
  configs.push_back(
      parse_json(R"({"model_type": "gpt2", "vocab_size": 19, "n_embd": 8, "n_layer": 3, "n_head": 2,
    "n_positions": 64, "n_inner": null, "resid_pdrop": 0.1, "initializer_range": 0.05})"));
  return configs;
}

Profile profile_of(const ModelGraph& model) {
  const ResolvedModel resolved = resolve(model);
  Profile profile;
  profile.model = resolved.graph;
  profile.model_hash = model_hash(resolved.graph);
  profile.device = {.kind = DeviceKind::cpu,
                    .name = "test",
                    .cores_per_device = 1,
                    .devices_busy = 2,
                    .memory = Bytes(1 << 30)};
  profile.micro_batch_sizes = {1, 2, 4, 8};
  for (int l = 0; l < resolved.layer_count(); ++l) {
    const ResolvedLayer& layer = resolved.layers[static_cast<std::size_t>(l)];
    LayerProfile& measured = profile.layers.emplace_back();
    measured.name = resolved.graph.layers[static_cast<std::size_t>(l)].name;
    measured.parameters = parameter_bytes(resolved, l, DType::float32);
    measured.parameter_count = measured.parameters.value / size_of(DType::float32);
    measured.forward_flops_per_sample = layer.forward_flops;
    for (const std::int64_t size : profile.micro_batch_sizes) measured.points.push_back(point_of(layer, size));
  }
  for (const std::int64_t size : profile.micro_batch_sizes)
    profile.whole_model.push_back({size, about(1e-4), about(2e-4), Bytes(1 << 20)});
  profile.optimizers = {
      {.name = "sgd", .state_bytes_per_parameter_byte = 1, .update = about(1e-4), .parameters = Bytes(4096)}};
  return profile;
}

std::vector<Profile> profile_corpus() {
  std::vector<Profile> profiles;
  for (const ModelGraph& model : {test::mlp(2), test::shared_mlp(), test::residual_net()})
    profiles.push_back(profile_of(model));
  return profiles;
}

std::vector<Cluster> cluster_corpus() {
  const std::vector<LevelSpec> levels{{2, BytesPerSecond(1e10)}, {2, BytesPerSecond(1e9)}};
  Cluster measured = flat_cluster(2, DeviceKind::cpu, BytesPerSecond(1e9), Seconds(1e-5), Bytes(1 << 30));
  measured.measured = true;
  measured.levels[0].samples = {{Bytes(1024), about(1.1e-5)}, {Bytes(1 << 20), about(1e-3)}};
  measured.devices[0].cores = {0};
  measured.devices[1].speed = 0.5;
  return {flat_cluster(3, DeviceKind::cpu, BytesPerSecond(1e9), Seconds(1e-6), Bytes(0)),
          nested_cluster(levels, DeviceKind::cpu, Seconds(1e-6), Bytes(1 << 20)), measured};
}

std::vector<plan::Plan> trainable_corpus() {
  std::vector<plan::Plan> plans;
  for (const PlanSpec& spec : specs()) plans.push_back(make_plan(spec));
  return plans;
}

std::vector<plan::Plan> plan_corpus() {
  std::vector<plan::Plan> plans = trainable_corpus();
  plans.push_back(make_plan({.model = test::mlp(4), .cuts = {4}, .schedule = "2bw", .micro_batches = 4}));
  plans.push_back(
      make_plan({.model = test::mlp(4), .cuts = {4}, .schedule = "vertical-sync", .micro_batches = 1}));
  const Profile profile = profile_of(test::residual_net());
  for (const char* schedule :
       {"auto", "gpipe", "1f1b", "interleaved", "zb-h1", "chimera", "pipedream", "zb-v"}) {
    plan::PlanRequest request;
    request.schedule = schedule;
    const bool any = request.schedule == "auto" || request.schedule == "pipedream";
    if (!any) request.stages = 2;
    if (!any) request.micro_batches = 4;
    plans.push_back(planned(profile, 2, request));
  }
  plan::PlanRequest replicas;
  replicas.schedule = "1f1b";
  replicas.replicas = {2, 1};
  plans.push_back(planned(profile, 3, replicas));
  plan::PlanRequest copies;
  copies.tied = plan::TiedWeights::copies;
  copies.cuts = {5};
  copies.schedule = "gpipe";
  plans.push_back(planned(profile_of(test::shared_mlp()), 2, copies));
  return plans;
}

std::vector<std::string> csv_corpus() {
  std::vector<std::string> texts;
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "chimera"})
    texts.push_back(plan::to_csv(plan::program_set({.name = name, .replicas = {1, 1}, .micro_batches = 4})));
  texts.push_back(plan::to_csv(plan::program_set({.name = "1f1b", .replicas = {2, 1}, .micro_batches = 4})));
  texts.push_back(
      plan::to_csv(plan::program_set({.name = "dapple-pa", .replicas = {2, 1}, .micro_batches = 3})));
  return texts;
}

std::vector<std::string> pipedream_corpus() {
  const auto node = [](const std::string& id, const std::string& what) {
    return id + " -- " + what +
           " -- forward_compute_time=1.5, backward_compute_time=2.000, activation_size=[8.0; 4; 4], "
           "parameter_size=40.000\n";
  };
  return {node("node3", "Linear(in=4, out: 2) a=b, c") + node("node2", "ReLU()") + node("node1", "Input0") +
          node("node4", "Softmax()") + node("node5", "Add") +
          "\tnode1 -- node2\n\tnode2 -- node3\n\tnode2 -- node4\n\tnode3 -- node5\n\tnode4 -- node5\n"};
}

std::vector<Json> piper_corpus() {
  const auto variant = [](double time, double saved) {
    return Json{{"id", "any"},
                {"timePerSample", time},
                {"parameterSize", 40},
                {"memoryUsageA", saved},
                {"memoryUsageB", 120},
                {"syncTimeFw", {{"1", 3.0}}},
                {"syncTimeBw", {{"2", 5.0}}}};
  };
  return {Json{{"maxMemoryPerDevice", 1e6},
               {"bandwidth", 1e9},
               {"mbsInBatch", 8},
               {"nodes",
                {{{"id", 1}, {"TMPCs", {{"1", {variant(3, 10)}}, {"2", {variant(2, 5)}}}}},
                 {{"id", 2}, {"TMPCs", {{"1", {variant(8, 2), variant(6, 20)}}}}},
                 {{"id", 3}, {"TMPCs", {{"1", {variant(4, 7)}}}}}}},
               {"edges",
                {{{"sourceId", 1}, {"destId", 2}, {"communicationCost", 100.0}},
                 {{"sourceId", 2}, {"destId", 3}, {"communicationCost", 50.0}}}}}};
}

std::vector<Json> dnn_partitioning_corpus() {
  const auto node = [](int id, int color, bool backward, double ms) {
    return Json{{"id", id},
                {"colorClass", color},
                {"isBackwardNode", backward ? 1 : 0},
                {"fpgaLatency", ms},
                {"cpuLatency", 99},
                {"size", 30},
                {"supportedOnFpga", 1},
                {"name", "any"}};
  };
  const auto edge = [](int source, int dest, double cost) {
    return Json{{"sourceId", source}, {"destId", dest}, {"cost", cost}, {"size", 1}};
  };
  return {Json{{"maxSizePerFPGA", 1000.0},
               {"maxFPGAs", 3},
               {"maxCPUs", 1},
               {"nodes",
                {node(17, 2, true, 8), node(7, 2, false, 4), node(5, 1, false, 1), node(15, 1, true, 2),
                 node(9, 3, false, 2), node(19, 3, true, 3)}},
               {"edges", {edge(5, 7, 0.5), edge(17, 15, 0.25), edge(7, 9, 0.1), edge(19, 17, 0.1)}}}};
}

std::vector<std::vector<std::string>> command_corpus() {
  return {
      {"make", "profile.json", "--devices", "3", "--bandwidth", "1GB/s", "--mini-batch", "8"},
      {"make", "profile.json", "--levels", "2@10GB/s,2@1GB/s", "--latency", "5us", "--mini-batch", "8"},
      {"make", "profile.json", "--cluster", "cluster.json", "--mini-batch", "8", "--micro-batch-size", "2"},
      {"make", "profile.json", "--devices", "2", "--bandwidth", "1GB/s", "--mini-batch", "8", "--programs",
       "programs.csv"},
      {"make", "profile.json", "--cost-model", "pipedream-code", "--devices", "4", "--bandwidth", "1e9"},
      {"make", "profile.json", "--cost-model", "dapple", "--devices", "4", "--mini-batch", "16"},
      {"compare", "profile.json", "--devices", "2", "--bandwidth", "1GB/s", "--mini-batch", "4"},
      {"sweep", "profile.json", "--devices", "1,2", "--bandwidth", "1GB/s", "--mini-batch", "8",
       "--micro-batches", "1,4", "--schedules", "gpipe,1f1b", "--csv", "rows.csv"},
      {"simulate", "--schedule", "zb-h1", "--stages", "3", "--micro-batches", "4", "--costs",
       "F=1,I=1,W=1,comm=0.1"},
      {"simulate", "--schedule", "interleaved", "--stages", "2", "--micro-batches", "4", "--chunks", "2",
       "--to-csv", "x.csv"},
      {"simulate", "--schedule", "1f1b", "--replicas", "2-1", "--micro-batches", "4", "--window", "3,2",
       "--trace", "x.json"},
      {"simulate", "--schedule", "auto-zb", "--stages", "2", "--micro-batches", "3", "--in-flight-limit", "3"},
      {"simulate", "--schedule", "harmony-pp", "--stages", "2", "--micro-batches", "2", "--forward-packs",
       "1,1"},
      {"simulate", "--schedule", "generation", "--stages", "2", "--micro-batches", "2", "--tokens", "3"},
      {"simulate", "--schedule", "pipedream", "--replicas", "2-1", "--recompute", "always"},
      {"simulate", "--csv", "programs.csv", "--queues", "1"},
      {"simulate", "plan.json", "--updates", "2", "--svg", "x.svg", "--width", "80"},
      {"show", "plan.json", "--programs", "--timeline"},
      {"check", "plan.json", "--profile", "profile.json"},
      {"export", "plan.json", "--profile", "profile.json", "-o", "x.txt"},
      {"schedules"},
  };
}

std::vector<std::vector<std::string>> option_corpus() {
  return {{"--schedule", "1f1b"},
          {"--schedule", "gpipe"},
          {"--schedule", "interleaved"},
          {"--schedule", "zb-h1"},
          {"--schedule", "chimera"},
          {"--schedule", "pipedream"},
          {"--schedule", "gpipe,zb-v"},
          {"--stages", "2"},
          {"--max-stages", "2"},
          {"--replicas", "2-1"},
          {"--cuts", "2"},
          {"--micro-batches", "4"},
          {"--recompute", "auto"},
          {"--memory-limit", "100KiB"},
          {"--memory-limit", "10KiB"},
          {"--allow-async"},
          {"--window", "2,1"},
          {"--window", "wide"},
          {"--tied", "copies"},
          {"--placement", "auto"},
          {"--optimizer", "adamw"},
          {"--optimizer", "rmsprop"},
          {"--extrapolate"},
          {"--linear-batch"},
          {"--force-units"},
          {"--explain"},
          {"--json"},
          {"--top", "2"},
          {"--strategy", "balance-by-time"}};
}

}  // namespace pp::fuzz

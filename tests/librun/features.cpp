// What each feature makes of a training, and what cannot be combined.
#include "tests/librun/features.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "libplan/schedule/schedule.h"
#include "libplan/search/zero_bubble/auto_zero_bubble.h"
#include "libprofile/model/families/families.h"
#include "libprofile/model/families/hugging_face.h"
#include "tests/lab/fuzz/random.h"
#include "tests/librun/imported_models.h"
#include "tests/librun/models.h"

namespace pp::test {

using namespace pp;
using fuzz::Random;

namespace {

Feature model_of(std::string name, ModelGraph model, MemoryFormat format = MemoryFormat::contiguous) {
  return {std::move(name),
          [=](Training& t) {
            t.spec.model = model;
            t.spec.memory_format = format;
          },
          format == MemoryFormat::contiguous};
}

/// Attention of a latent vector, a perceptron, experts with groups, corrected scores and a shared one.
ModelGraph mixture() {
  return model::build_hugging_face(
      parse_json(R"({"model_type": "deepseek_v3", "vocab_size": 12, "hidden_size": 8,
    "intermediate_size": 10, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "max_position_embeddings": 6, "kv_lora_rank": 6, "q_lora_rank": null, "qk_rope_head_dim": 2,
    "qk_nope_head_dim": 4, "v_head_dim": 3, "moe_intermediate_size": 6, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "n_group": 3, "topk_group": 2, "first_k_dense_replace": 1})"));
}

/// Attention with sinks, in a window and without one; experts with biases and clamped gates.
ModelGraph mixture_with_sinks() {
  return model::build_hugging_face(parse_json(R"({"model_type": "gpt_oss", "vocab_size": 12, "hidden_size": 8,
    "intermediate_size": 6, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 4, "max_position_embeddings": 6, "num_local_experts": 4, "num_experts_per_tok": 2,
    "sliding_window": 2, "swiglu_limit": 0.05})"));
}

Feature family(const std::string& spec) {
  return model_of(spec.substr(0, spec.find(':')), model::build_family(spec));
}

Feature schedule(const Kind& kind) {
  return {kind.schedule, [=](Training& t) { t.kind = kind; }};
}

Feature replicas(std::string name, int count, bool all, plan::Shard shard = plan::Shard::none,
                 double overlap = 0) {
  return {std::move(name), [=](Training& t) {
            t.spec.replicas.assign(static_cast<std::size_t>(t.kind.places), all || !t.kind.uneven ? count : 1);
            t.spec.replicas.back() = count;
            if (!t.kind.uneven && t.kind.micro_batches > 1) t.kind.micro_batches *= count;
            t.spec.shard = shard;
            t.spec.all_reduce_overlap = overlap;
          }};
}

Feature recompute(std::string name, plan::Recompute mode) {
  return {std::move(name), [=](Training& t) { t.spec.recompute = {mode}; }};
}

/// Every other linear layer, or the weights of all, which is BitFit.
Feature frozen(std::string name, bool weights) {
  return {std::move(name), [=](Training& t) {
            bool next = true;
            for (Layer& layer : t.spec.model.layers) {
              if (layer.op != "linear" || !layer.weights_of.empty() || !layer.frozen.none()) continue;
              if (weights) {
                layer.frozen.names = {"weight"};
              } else {
                layer.frozen.all = std::exchange(next, !next);
              }
            }
          }};
}

Feature type(std::string name, DType dtype, std::optional<Autocast> autocast = {}) {
  return {std::move(name),
          [=](Training& t) {
            t.spec.dtype = dtype;
            t.options.autocast = autocast;
          },
          dtype != DType::bfloat16 && !autocast};
}

Feature optimizer(OptimizerName name) {
  return {std::string(name_of(name)), [=](Training& t) { t.spec.optimizer = name; }};
}

/// Boundaries, and numbers of micro-batches where the schedule takes any.
void draw(Training& t, int layers) {
  Random random(t.draw);
  const std::string_view any =
      "gpipe gpipe-reverse 1f1b hybrid data-parallel dapple-pa dapple-pb looped-bfs zb-h1 zb-h2 auto-zb zb-v";
  if (t.kind.micro_batches == 4 && any.find(t.kind.schedule) != std::string_view::npos)
    t.spec.micro_batches = random.integer(2, 6);
  std::vector<int> all;
  for (int boundary = 1; boundary < layers; ++boundary) all.push_back(boundary);
  random.shuffle(all);
  all.resize(t.spec.cuts.size());
  std::ranges::sort(all);
  t.spec.cuts = all;
}

/// Programs that another order of costs would not give.
void draw_zero_bubble(std::uint64_t seed, plan::Plan& plan) {
  Random random(seed);
  plan::ZeroBubbleRequest request;
  request.pipeline.programs.micro_batches = plan.training.micro_batches;
  request.evaluations = 200;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    request.pipeline.programs.stage_workers.push_back({WorkerId{static_cast<int>(s)}});
    plan::StageCosts& costs = request.pipeline.stages.emplace_back();
    costs.forward = Seconds(random.integer(1, 5));
    costs.input_gradient = Seconds(random.integer(1, 5));
    costs.weight_gradient = Seconds(random.integer(1, 5));
    costs.backward = costs.input_gradient + costs.weight_gradient;
  }
  const plan::ZeroBubbleResult found = plan::search_zero_bubble(request);
  for (std::size_t w = 0; w < plan.workers.size(); ++w) {
    // The updates (and ARg before them) stay as the rule has them.
    plan::Program& program = plan.workers[w].program.program;
    std::erase_if(program, [](const plan::Op& op) { return plan::has_micro_batch(op.kind); });
    plan::Program searched = found.programs.workers[w];
    std::erase_if(searched, [](const plan::Op& op) { return !plan::has_micro_batch(op.kind); });
    program.insert(program.begin(), searched.begin(), searched.end());
  }
  plan.schedule.name = "auto-zb";
}

plan::Plan plan_of(const Training& t, const PlanSpec& spec) {
  plan::Plan plan = make_plan(spec);
  const bool replicated = std::ranges::any_of(spec.replicas, [](int count) { return count > 1; });
  if (t.kind.schedule == "auto-zb" && spec.recompute.empty() && !replicated) draw_zero_bubble(t.draw + 1, plan);
  return plan;
}

/// Boundaries a layer further in front, state divided or whole, and recomputation: the other way round.
PlanSpec other(PlanSpec spec) {
  for (std::size_t s = 0; s < spec.cuts.size(); ++s) {
    const int before = s == 0 ? 0 : spec.cuts[s - 1];
    if (spec.cuts[s] - before > 1) --spec.cuts[s];
  }
  const bool whole = spec.shard == plan::Shard::none;
  const bool replicated = std::ranges::any_of(spec.replicas, [](int count) { return count > 1; });
  if (replicated) spec.shard = whole ? plan::Shard::optimizer : plan::Shard::none;
  if (is_stream(spec) || spec.schedule.starts_with("harmony")) return spec;
  const bool again = !spec.recompute.empty() || !spec.rerun_layers.empty();
  spec.recompute.clear(), spec.rerun_layers.clear();
  if (!again) spec.recompute = {plan::Recompute::always};
  return spec;
}

const std::vector<Refused>& refused() {
  using Names = std::vector<std::string>;
  const Names streams{"pipedream", "vertical-sync", "2bw", "macrobatch", "spectrain", "xpipe", "partime"};
  const Names swaps{"harmony-pp", "harmony-dp"}, server{"parameter-server"};
  const Names decisions{"clipping", "loss scale", "--on-nan skip", "autocast to float16"};
  const Names several{"two replicas", "three replicas", "two that share the state",
                      "three that share the state", "overlapped sums"};
  const Names divided{"two that share the state", "three that share the state"};
  const Names stages_again{"stages again", "all stages but the last again"};
  const Names norms{"batch norm", "channels last", "imported residual"};
  static const std::vector<Refused> all{
      {streams, {"accumulation"}, "is asynchronous, its updates stand in the plan"},
      {swaps, {"accumulation"}, "gradients leave the device with their stage"},
      {streams, decisions, "are updated at different times"},
      {server, decisions, "no replica sees the whole gradient before the update"},
      {swaps, decisions, "is not known before the first update"},
      {streams, {"mixed"}, "which pp-run keeps with synchronous schedules alone"},
      {swaps, {"mixed"}, "which pp-run keeps with synchronous schedules alone"},
      {server, {"mixed"}, "which pp-run keeps with synchronous schedules alone"},
      {swaps, {"two ranks", "a rank a worker"}, "run it without mpirun"},
      {swaps, stages_again, "recompute is not a choice here"},
      {{"partime"}, stages_again, "recompute is not a choice here"},
      {swaps, {"layers again"}, "must be empty: the programs run the whole stage again"},
      {{"pipedream", "vertical-sync", "2bw", "macrobatch", "spectrain", "xpipe"},
       {"all stages but the last again"},
       "a stream has none"},
      {{"naive", "harmony-pp", "harmony-dp", "vertical-sync", "spectrain", "xpipe", "partime"},
       several,
       "it runs 1 worker per stage"},
      {{"dapple-pa", "dapple-pb"}, several, "replicas that split one cannot be run"},
      {{"parameter-server", "pipedream", "2bw", "macrobatch"}, divided, "its replicas do not update together"},
      {norms, server, "its running statistics would be each replica's own"},
      {norms, {"partime"}, ""},  // one frame has no statistics, and skips go no further than the next stage
      {{"imported attention"}, {"partime"}, "hands frames to the next stage only"},
      {{"spectrain", "xpipe"}, {"adagrad"}, "adagrad has none"},
      {{"spectrain", "xpipe"}, {"rmsprop"}, "rmsprop has none at momentum 0"},
      {{"gnmt"}, {"autocast to float16"}, "", "oneDNN has no LSTM in float16 for most processors"}};
  return all;
}

}  // namespace

const std::vector<Axis>& axes() {
  using enum OptimizerName;
  using plan::Shard;
  static const std::vector<Axis> all{
      {"model",
       {model_of("dropout", dropout_mlp()), model_of("batch norm", residual_net()),
        model_of("channels last", residual_net(), MemoryFormat::channels_last),
        model_of("shared weights", shared_mlp()), family("lenet5:image=12"),
        family("gnmt:layers=2,width=8,vocabulary=11,source=4,target=3"),
        family("transformer:layers=1,width=8,heads=2,vocabulary=12,sequence=6,dropout=0.2,tied=1"),
        family("t5_small:layers=1,width=8,heads=2,hidden=12,vocabulary=13,source=5,target=4,dropout=0.1"),
        model_of("experts", mixture()), model_of("sinks", mixture_with_sinks()),
        model_of("imported residual", imported_residual()),
        model_of("imported attention", imported_attention()), model_of("LoRA", lora()),
        model_of("frozen embedding", frozen_embedding()), model_of("unread and detached", cut_off())}},
      {"schedule",
       {schedule({"1f1b", 3, 1, 4, true}),
        schedule({"naive", 2, 1, 1}),
        schedule({"data-parallel", 1}),
        schedule({"gpipe", 3, 1, 4, true}),
        schedule({"gpipe-reverse", 2, 1, 4, true}),
        schedule({"hybrid"}),
        schedule({"dapple-pa", 3}),
        schedule({"dapple-pb", 3}),
        schedule({"interleaved", 2, 2}),
        schedule({"looped-bfs", 2, 2}),
        schedule({"zb-h1", 3}),
        schedule({"zb-h2"}),
        schedule({"auto-zb", 3}),
        schedule({"zb-v", 2, 2}),
        schedule({"dualpipe-v", 2, 2}),
        schedule({"chimera"}),
        schedule({"harmony-pp", 2, 2}),
        schedule({"harmony-dp", 2, 2}),
        schedule({"pipedream", 3, 1, 1, true}),
        schedule({"vertical-sync", 3, 1, 1}),
        schedule({"2bw", 3}),
        schedule({"macrobatch", 3}),
        schedule({"spectrain", 3, 1, 1}),
        schedule({"xpipe", 3, 1, 2}),
        schedule({"partime", 3, 1, 1}),
        schedule({"parameter-server", 1, 1, 1})}},
      {"replicas",
       {{"one replica"},
        replicas("two replicas", 2, true),
        replicas("three replicas", 3, false),
        replicas("two that share the state", 2, true, Shard::optimizer),
        replicas("three that share the state", 3, false, Shard::optimizer, 0.5),
        replicas("overlapped sums", 2, false, Shard::none, 0.5)}},
      {"clipping", {{"unclipped"}, {"clipping", [](Training& t) { t.options.clip_norm = 0.05; }}}},
      {"recomputation",
       {{"nothing again"},
        recompute("stages again", plan::Recompute::always),
        recompute("all stages but the last again", plan::Recompute::except_last),
        {"layers again",
         [](Training& t) {
           for (std::size_t l = t.draw % 2; l < t.spec.model.layers.size(); l += 2)
             t.spec.rerun_layers.push_back(t.spec.model.layers[l].name);
         }}}},
      {"ranks",
       {{"one process"},
        {"two ranks", [](Training& t) { t.ranks = 2; }},
        {"a rank a worker", [](Training& t) { t.ranks = 0; }}}},
      {"accumulation", {{"one mini-batch"}, {"accumulation", [](Training& t) { t.options.accumulate = 2; }}}},
      {"frozen", {{"all trained"}, frozen("frozen layers", false), frozen("frozen weights", true)}},
      {"type",
       {{"float32"},
        type("float64", DType::float64),
        type("bfloat16", DType::bfloat16),
        {"mixed",
         [](Training& t) {
           t.spec.dtype = DType::bfloat16;
           t.spec.precision = plan::Precision::mixed;
         },
         false},
        type("autocast to bfloat16", DType::float32, Autocast::bfloat16),
        type("autocast to float16", DType::float32, Autocast::float16)}},
      {"optimizer",
       {{"sgd"},
        {"nesterov", [](Training& t) { t.options.optimizer["nesterov"] = 1; }},
        optimizer(adam),
        optimizer(adamw),
        optimizer(rmsprop),
        optimizer(adagrad)}},
      {"parts",
       {{"in one run"},
        {"resumed", [](Training& t) { t.resumed = true; }},
        {"resumed on another plan", [](Training& t) { t.resumed = t.elsewhere = true; }}}},
      {"rules",
       {{"no rules"},
        {"rules of weights",
         [](Training& t) {
           t.options.rules = {{"b"}, {{"e", 0.5}}};
         },
         false}}},
      {"loss scale", {{"unscaled"}, {"loss scale", [](Training& t) { t.options.loss_scale = 1024; }}}},
      {"not finite",
       {{"failing"}, {"--on-nan skip", [](Training& t) { t.options.on_nan = run::OnNan::skip; }}}},
      {"samples",
       {{"even"}, {"a small last mini-batch", [](Training& t) { t.options.synthetic_samples -= 2; }}}}};
  return all;
}
const std::string& name_in(std::size_t axis, std::size_t feature) {
  return axes()[axis].features[feature].name;
}

std::string text_of(const Row& row) {
  std::string text;
  for (std::size_t a = 0; a < row.size(); ++a) text += (a == 0 ? "" : ", ") + name_in(a, row[a]);
  return text;
}

std::vector<Pair> all_pairs() {
  std::vector<Place> places;
  for (std::size_t a = 0; a < axes().size(); ++a) {
    for (std::size_t i = 0; i < axes()[a].features.size(); ++i) places.emplace_back(a, i);
  }
  std::vector<Pair> pairs;
  for (const Place& one : places) {
    for (const Place& two : places) {
      if (one.first < two.first) pairs.emplace_back(one, two);
    }
  }
  return pairs;
}

/// Null: the two are trained together.
const Refused* refused(const Pair& pair) {
  const std::string &one = name_in(pair.first.first, pair.first.second),
                    &two = name_in(pair.second.first, pair.second.second);
  const auto in = [](const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::count(names, name) > 0;
  };
  for (const Refused& entry : refused()) {
    if ((in(entry.ones, one) && in(entry.others, two)) || (in(entry.ones, two) && in(entry.others, one)))
      return &entry;
  }
  return nullptr;
}

bool is_stream(const PlanSpec& spec) { return !plan::require_schedule(spec.schedule).synchronous; }

bool shares_weights(const ModelGraph& model) {
  return std::ranges::any_of(model.layers, [](const Layer& layer) { return !layer.weights_of.empty(); });
}

bool predicts(const PlanSpec& spec) {
  return plan::require_schedule(spec.schedule).default_policy() == plan::WeightPolicy::predict;
}

PlanSpec plain(PlanSpec spec) {
  spec.shard = plan::Shard::none;
  if (!predicts(spec)) spec.recompute.clear(), spec.rerun_layers.clear();
  spec.all_reduce_overlap = 0;
  return spec;
}

Training training_of(const Row& row, std::uint64_t draws, const ModelGraph* model) {
  Training t;
  t.draw = draws;
  run::RunOptions& options = t.options;
  options.data = "synthetic";
  options.synthetic_samples = 36;
  options.steps = 4;
  options.learning_rate = 0.05;
  options.weight_decay = 0.01;
  options.random_weights = true;
  options.evaluate = draws % 3 == 1;
  options.seed = draws;
  for (std::size_t a = 0; a < row.size(); ++a) {
    axes()[a].features[row[a]].give(t);
    if (a == 0 && model != nullptr) t.spec.model = *model, t.spec.memory_format = MemoryFormat::contiguous;
  }
  PlanSpec& spec = t.spec;
  spec.schedule = t.kind.schedule;
  spec.chunks = t.kind.chunks == 1 ? 0 : t.kind.chunks;
  spec.micro_batches = t.kind.micro_batches;
  spec.mini_batch = 12;
  const int layers = static_cast<int>(spec.model.layers.size());
  if (t.kind.schedule == "auto-zb") spec.schedule = "zb-h1";
  const bool shares = shares_weights(spec.model);
  const bool stream = is_stream(spec), swaps = spec.schedule.starts_with("harmony");
  const bool whole = shares && (stream || swaps);  // their stages share no weights
  if (whole) spec.chunks = 0;
  if (whole && spec.replicas.size() > 1) spec.replicas = {spec.replicas.back()};
  for (int s = 1; s < (whole ? 1 : t.kind.places * t.kind.chunks); ++s)
    spec.cuts.push_back(s * layers / (t.kind.places * t.kind.chunks));
  if (stream) {  // an epoch of 12 updates
    spec.mini_batch = t.kind.schedule == "partime" ? 1 : std::max(4, 2 * spec.micro_batches);
    options.synthetic_samples += 12 * spec.mini_batch - 36;
    options.steps = 12;
  }
  if (draws != 0 && t.kind.schedule != "partime") draw(t, layers);
  if (options.autocast == Autocast::float16) options.steps = 3 * *options.steps;  // the first ones are skipped
  return t;
}

std::vector<Part> parts_of(const Training& t, bool as_plain) {
  const auto plan = [&](const PlanSpec& spec) { return plan_of(t, as_plain ? plain(spec) : spec); };
  std::vector<Part> parts;
  if (t.resumed) parts.push_back({plan(t.elsewhere ? other(t.spec) : t.spec), *t.options.steps / 2});
  parts.push_back({plan(t.spec), *t.options.steps});
  return parts;
}

}  // namespace pp::test

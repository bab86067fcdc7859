// Source: Megatron-LM, core release 0.13 and later (megatron/training/arguments.py).
// `--pipeline-model-parallel-layout`: E embedding, t decoder layer, m multi-token prediction, L loss, `|`
// between stages, `t*n` for n layers. Its schedules are 1F1B and, with more stages than workers, interleaved.
// Ranks count tensor members first, then those of context groups, then replicas, then stages, or with
// `--use-tp-pp-dp-mapping` stages before replicas.
#include "libplan/interop/megatron_model.h"

#include <algorithm>
#include <array>
#include <utility>

#include "libplan/interop/block_row.h"
#include "libplan/interop/megatron_arguments.h"
#include "libplan/interop/trainer_export.h"
#include "libplan/schedule/schedule.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"
#include "libprofile/core/text.h"

namespace pp::plan {
namespace {

const std::string kMegatronName = "Megatron-LM";

/// `t*3`
std::string letters(char letter, int times) {
  if (times == 0) return {};
  return std::string(1, letter) + (times == 1 ? "" : "*" + std::to_string(times));
}

/// `Et*3|t*2mL`: so many blocks in each stage, and in one of them the predictions.
std::string layout_of(const std::vector<int>& blocks, int predicting, int predictions) {
  const int last = static_cast<int>(blocks.size()) - 1;
  std::string layout = "E";
  for (int s = 0; s <= last; ++s) {
    layout += (s > 0 ? "|" : "") + letters('t', blocks[at(s)]);
    if (s == predicting) layout += letters('m', predictions);
  }
  return layout + "L";
}

/// Shared weights of the embedding and the head alone, which it adds up over the first and last stage.
void check_tied(const Plan& plan) {
  const auto last = StageId{static_cast<int>(plan.stages.size()) - 1};
  for (const TiedParameter& tied : plan.tied) {
    if (tied.stages == std::vector{StageId{0}, last}) continue;
    detail::refuse_plan(
        kMegatronName,
        tied.parameter + " has copies in stages other than the first and the last; plan with --tied stage");
  }
}

/// Half types are of mixed precision there, and the optimizer's state is divided as here.
std::string precision_arguments(const Training& training, detail::LossList& lost) {
  const bool half = training.dtype == DType::bfloat16;
  if (training.precision == Precision::autocast)
    lost.add("it has no autocast, which keeps weights in float32; plan with --precision mixed");
  if (half && training.precision == Precision::plain) {
    lost.add(
        "it keeps a float32 master and gradients of half weights, and needs more memory than planned; plan "
        "with --precision mixed");
  }
  std::string text = half || training.precision == Precision::mixed ? "--bf16\n" : "";
  if (training.products == NarrowType::float8) text += "--fp8-format hybrid\n--fp8-recipe tensorwise\n";
  if (training.products == NarrowType::mxfloat8) text += "--fp8-format e4m3\n--fp8-recipe mxfp8\n";
  if (training.products == NarrowType::float4) text += "--fp4-format e2m1\n--fp4-recipe nvfp4\n";
  if (training.shard == Shard::optimizer) text += "--use-distributed-optimizer\n";
  return text;
}

std::string optimizer_argument(OptimizerName name, detail::LossList& lost) {
  std::string_view text = row_of(name).megatron;
  if (text.empty()) {
    lost.add("its optimizers are Adam and SGD, not " + std::string(name_of(name)) + "; Adam stands there");
    text = "adam";
  }
  return "--optimizer " + std::string(text) + "\n";
}

std::string argument(std::string_view name, std::int64_t value) {
  return "--" + std::string(name) + " " + std::to_string(value) + "\n";
}

/// Recomputation is a setting of the whole model there.
std::string recompute_arguments(const Plan& plan, const detail::BlockRow& row, detail::Lane& lane,
                                detail::LossList& lost) {
  using Kind = detail::BlockRecompute::Kind;
  const detail::BlockRecompute again = detail::block_recompute(plan, row);
  detail::LossList said(Losses::leave_out);
  detail::leave_out_recompute(plan, lane, again.kind == Kind::other ? lost : said);
  switch (again.kind) {
    case Kind::none:
    case Kind::other: return {};
    case Kind::full:
      return "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n";
    case Kind::attention: return "--recompute-granularity selective\n--recompute-modules core_attn\n";
    case Kind::first:
      return "--recompute-granularity full\n--recompute-method block\n" +
             argument("recompute-num-layers", again.blocks);
  }
  return {};
}

/// The sizes of a group.
std::string group_arguments(const Plan& plan) {
  std::string text;
  if (plan.tensor_degree > 1) {
    text += argument("tensor-model-parallel-size", plan.tensor_degree) +
            (detail::splits_sequence(plan) ? "--sequence-parallel\n" : "");
  }
  if (plan.context_degree > 1) text += argument("context-parallel-size", plan.context_degree);
  if (detail::mixture_of(plan) != nullptr) {
    text += argument("expert-model-parallel-size", plan.expert_degree) +
            "--expert-tensor-parallel-size 1\n--moe-token-dispatcher-type alltoall\n";
  }
  return text;
}

std::string rank_arguments(const Plan& plan, const detail::Lane& lane, detail::LossList& lost) {
  const auto order = detail::rank_order(plan, lane);
  if (order == detail::RankOrder::pipelines) return "--use-tp-pp-dp-mapping\n";
  if (!order) {
    lost.add(
        "its ranks go through the devices stage by stage, with other links than planned; plan with "
        "--placement packed");
  }
  return {};
}

/// What the plan hides behind the last backward it asks for.
std::string overlap_arguments(const Plan& plan) {
  if (plan.predicted.all_reduce_overlap <= 0) return {};
  const bool shared = plan.training.shard == Shard::optimizer;
  return std::string("--overlap-grad-reduce\n") + (shared ? "--overlap-param-gather\n" : "");
}

/// A group gets one queue of the device, which Blackwell needs no more and does not mind.
std::string environment(const Plan& plan) {
  return group_size(plan) > 1 ? "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" : "";
}

/// Files of arguments have one to a line; `*` and `|` are not the shell's.
std::string megatron_launcher(const Plan& plan, const std::vector<std::string>& unsaid) {
  const detail::Processes processes = detail::processes_of(plan, kMegatronName);
  std::string text =
      "#!/usr/bin/env bash\n"
      "# MEGATRON=FOLDER [NODE_RANK=n MASTER_ADDR=host] launch.sh MORE ARGUMENTS, on every node\n"
      "set -euf\n"
      "here=$(dirname \"$0\")\n";
  if (!unsaid.empty())
    text +=
        "echo 'warning: model.txt does not say all of the model; README.md beside it has what is missing' "
        ">&2\n";
  return text + environment(plan) + "exec torchrun --nproc-per-node " + std::to_string(processes.per_node) +
         " --nnodes " + std::to_string(processes.nodes) +
         " --node-rank \"${NODE_RANK:-0}\" \\\n"
         "  --master-addr \"${MASTER_ADDR:-localhost}\" --master-port \"${MASTER_PORT:-29500}\" \\\n"
         "  \"${MEGATRON:?the folder of Megatron-LM}/pretrain_gpt.py\" \\\n"
         "  $(cat \"$here/arguments.txt\" \"$here/model.txt\") \"$@\"\n";
}

/// Shell lines: a first try on made-up data, then training. Its null tokenizer adds a word of its own.
std::string launch_lines(std::int64_t vocabulary) {
  return "# 20 steps on made-up data, for times and memory\n"
         "MEGATRON=Megatron-LM bash launch.sh --mock-data --split 99,1,0 --tokenizer-type NullTokenizer "
         "--vocab-size " +
         (vocabulary > 1 ? std::to_string(vocabulary - 1) : "N") +
         " --lr 3e-4 --train-iters 20 --eval-iters 0 --log-interval 1\n"
         "# training\n"
         "MEGATRON=Megatron-LM bash launch.sh --data-path DATA --tokenizer-type TYPE --lr 3e-4 --train-iters "
         "1000\n";
}

detail::TrainerNotes megatron_notes(const Plan& plan, const detail::LanguageSizes& sizes,
                                    const std::vector<std::string>& unsaid) {
  detail::TrainerNotes notes{
      .trainer = "Megatron-LM (core release 0.13 and later)",
      .launch = launch_lines(sizes.vocabulary),
      .yours = {"data, tokenizer, learning rate, number of steps"},
      .not_modelled = {"its fused and Transformer Engine kernels",
                       "the padding of the vocabulary (--make-vocab-size-divisible-by)"}};
  for (const std::string& what : unsaid) notes.yours.push_back("what model.txt does not say: " + what);
  if (plan.predicted.all_reduce_overlap <= 0)
    notes.not_modelled.emplace_back(
        "overlap that it offers and these arguments do not ask for: --overlap-grad-reduce, "
        "--overlap-param-gather; plan with --all-reduce-overlap 1 for both");
  if (plan.tensor_degree > 1)
    notes.not_modelled.emplace_back(
        "--tp-comm-overlap; the group's communication counts as the profile has it");
  return notes;
}

}  // namespace

void detail::check_order(const Plan& plan, const Lane& lane, LossList& lost) {
  const int workers = std::max(1, static_cast<int>(lane.programs.size()));
  const int stages = static_cast<int>(plan.stages.size());
  for (int w = 0; w < workers; ++w) {
    for (std::size_t c = 0; c < lane.stages[at(w)].size(); ++c) {
      const int stage = lane.stages[at(w)][c];
      if (stages % workers == 0 && stage == w + static_cast<int>(c) * workers) continue;
      detail::refuse_plan(
          kMegatronName, "stage " + std::to_string(stage) + " is on worker " + std::to_string(w) +
                             "; it deals stages to workers in turns; plan with --schedule 1f1b or interleaved");
    }
  }
  refuse_lone_chunks(plan, lane, kMegatronName);
  ScheduleRequest request{.name = stages == workers ? "1f1b" : "interleaved",
                          .replicas = std::vector<int>(at(workers), 1),
                          .micro_batches = lane.micro_batches,
                          .window = WindowRule::published,
                          .chunks_per_worker = stages / workers};
  if (stages > workers && lane.micro_batches % workers != 0) {
    detail::refuse_plan(kMegatronName, "interleaved stages need a multiple of " + std::to_string(workers) +
                                           " micro-batches, the plan has " +
                                           std::to_string(lane.micro_batches));
  }
  const ProgramSet own = program_set(request);
  for (std::size_t w = 0; w < lane.programs.size(); ++w) {
    Program program = own.workers[w];
    std::erase_if(program, [](const Op& op) { return !has_micro_batch(op.kind); });
    if (program == lane.programs[w]) continue;
    const bool wider = plan.schedule.name == request.name;
    return lost.add("its " + request.name + " runs in another order than the plan's " + plan.schedule.name +
                    ", with other times and memory than predicted, unless planned with " +
                    (wider ? "--window win" : "--schedule " + request.name));
  }
}

namespace {

/// What a plan is in Megatron-Core, whoever starts it.
struct MegatronRun {
  detail::Lane lane{};
  detail::LanguageSizes sizes{};
  detail::MegatronModel model{};
  std::string arguments{};  ///< an argument a line
  std::string optimizer{};
  std::vector<std::string> lost{};
};

MegatronRun megatron_run(const Plan& plan, Losses losses) {
  detail::LossList lost(losses);
  detail::refuse_shards(plan, kMegatronName);
  MegatronRun run{.lane = detail::lane_of(plan, kMegatronName, detail::Copies::allowed)};
  check_tied(plan);
  const ResolvedModel model = resolve(plan.model);
  const detail::BlockRow row = detail::block_row_of(model, kMegatronName);
  const std::vector<int> blocks = detail::blocks_of_stages(plan, row, kMegatronName);
  const int predicting = detail::stage_of_predictions(plan, row, kMegatronName);
  const int predictions = static_cast<int>(row.predictions.size());
  const std::string layout = layout_of(blocks, predicting, predictions);
  detail::leave_out_others(model, row, lost);
  detail::leave_out_unsaid(plan, run.lane, {.products = true, .predictions = predictions}, lost);
  const std::string recompute = recompute_arguments(plan, row, run.lane, lost);
  const std::string precision = precision_arguments(plan.training, lost);
  detail::check_order(plan, run.lane, lost);
  const std::string ranks = rank_arguments(plan, run.lane, lost);
  run.optimizer = optimizer_argument(plan.training.optimizer, lost);
  run.sizes = detail::language_sizes(model, row);
  run.model = detail::megatron_model(model, row);
  const Training& training = plan.training;
  run.arguments =
      argument("pipeline-model-parallel-size", std::ssize(run.lane.programs)) +
      "--pipeline-model-parallel-layout " + layout + "\n" + argument("num-layers", row.size()) +
      (predictions > 0 ? argument(kMegatronPredictions, predictions) : "") +
      argument("micro-batch-size", training.mini_batch / training.micro_batches / groups_of_samples(plan)) +
      argument("global-batch-size", training.mini_batch) + group_arguments(plan) + ranks + recompute +
      precision + overlap_arguments(plan);
  run.lost = lost.settle(kMegatronName);
  return run;
}

/// What trainers that run Megatron-Core call its arguments: the part of their configuration; empty: they have
/// no word for it. One that begins with `+` has keys that Hydra adds,
/// with `++` keys that may be there. Sources: Megatron Bridge 0.6, its guide
/// "Megatron-LM to Megatron Bridge" and training/mixed_precision.py; verl,
/// examples/grpo_trainer/run_*_megatron*.sh; NeMo RL, examples/configs/grpo_math_1B_megatron.yaml and
/// nemo_rl/models/policy (MegatronConfig, whose model_overrides are keys of Megatron Bridge's model).
struct Words {
  std::string_view argument, bridge, verl, nemo_rl;
};
constexpr std::string_view kVerlCore = "+megatron.override_transformer_config";
constexpr std::string_view kNemoRlModel = "++megatron_cfg.model_overrides";
constexpr std::array kWords{
    Words{"tensor-model-parallel-size", "model", "megatron", "megatron_cfg"},
    Words{"pipeline-model-parallel-size", "model", "megatron", "megatron_cfg"},
    Words{"virtual-pipeline-model-parallel-size", "model", "megatron", kNemoRlModel},
    Words{"pipeline-model-parallel-layout", "model", kVerlCore, kNemoRlModel},
    Words{kMegatronPredictions, "model", kVerlCore, kNemoRlModel},
    Words{"context-parallel-size", "model", "megatron", "megatron_cfg"},
    Words{"expert-model-parallel-size", "model", "megatron", "megatron_cfg"},
    Words{"expert-tensor-parallel-size", "model", "megatron", "megatron_cfg"},
    Words{"sequence-parallel", "model", "megatron", "megatron_cfg"},
    Words{"moe-token-dispatcher-type", "model", kVerlCore, "megatron_cfg"},
    Words{"recompute-granularity", "model", kVerlCore, "++megatron_cfg"},
    Words{"recompute-method", "model", kVerlCore, "++megatron_cfg"},
    Words{"recompute-num-layers", "model", kVerlCore, "++megatron_cfg"},
    Words{"recompute-modules", "model", kVerlCore, "++megatron_cfg"},
    Words{"micro-batch-size", "train", "ppo_micro_batch_size_per_gpu", "train_micro_batch_size"},
    Words{"global-batch-size", "train", "ppo_mini_batch_size", "train_global_batch_size"},
    Words{"use-distributed-optimizer", "ddp", "megatron", "megatron_cfg.optimizer"},
    Words{"overlap-grad-reduce", "ddp", "+megatron.override_ddp_config",
          "megatron_cfg.distributed_data_parallel_config"},
    Words{"overlap-param-gather", "ddp", "+megatron.override_ddp_config",
          "megatron_cfg.distributed_data_parallel_config"},
    Words{"use-tp-pp-dp-mapping", "dist", "", ""}};

/// A trainer that is configured by overrides of Hydra.
struct HydraTrainer {
  std::string name, version;
  std::string_view Words::*words;
  std::string root, yes;  ///< of every key; true
  std::string model;      ///< where the model is named
  std::string start;      ///< the command in front of the overrides; empty: torchrun with a recipe
  std::string yours;      ///< what else is the user's
};
const HydraTrainer kBridge{"Megatron Bridge", " (0.6)", &Words::bridge, "", "true", "the recipe", "", ""};
const HydraTrainer kVerl{
    .name = "verl",
    .version = " (Megatron backend)",
    .words = &Words::verl,
    .root = "actor_rollout_ref.actor.",
    .yes = "True",
    .model = "actor_rollout_ref.model.path",
    .start = "python3 -m verl.trainer.main_ppo --config-name ppo_megatron_trainer.yaml YOURS",
    .yours =
        "rollout, reference model, data; the reference takes the actor's degrees, and ppo_mini_batch_size "
        "counts prompts, each of rollout.n samples"};
const HydraTrainer kNemoRl{
    .name = "NeMo RL",
    .version = " (Megatron backend)",
    .words = &Words::nemo_rl,
    .root = "policy.",
    .yes = "true",
    .model = "policy.model_name",
    .start = "uv run examples/run_grpo.py --config examples/configs/grpo_math_1B_megatron.yaml YOURS",
    .yours =
        "generation, which takes no virtual stages with its Megatron backend; sequence packing, which "
        "context groups need; data"};

/// Bridge's recipes of precision; the others train in bfloat16.
std::string precision_words(const Training& training, const HydraTrainer& trainer, detail::LossList& lost) {
  if (&trainer == &kBridge) {
    std::string recipe = "bf16_mixed";
    if (training.products == NarrowType::float8) recipe = "bf16_with_fp8_current_scaling_mixed";
    if (training.products == NarrowType::mxfloat8) recipe = "bf16_with_mxfp8_mixed";
    if (training.products == NarrowType::float4) recipe = "bf16_with_nvfp4_mixed";
    return "mixed_precision=" + recipe + "\n";
  }
  if (training.products)
    lost.add("no key of its own says that products are of " + std::string(name_of(*training.products)));
  return &trainer == &kNemoRl ? "policy.precision=bfloat16\n" : "";
}

/// Keys that are no arguments of Megatron-LM.
std::string own_words(const MegatronRun& run, const Plan& plan, const HydraTrainer& trainer) {
  const std::string tokens = std::to_string(run.sizes.sequence);
  if (&trainer == &kBridge && run.sizes.sequence > 0)
    return "model.seq_length=" + tokens + "\ndataset.seq_length=" + tokens + "\n";
  if (&trainer != &kNemoRl) return {};
  const detail::Processes processes = detail::processes_of(plan, trainer.name);
  return (run.sizes.sequence > 0 ? "policy.max_total_sequence_length=" + tokens + "\n" : "") +
         "cluster.num_nodes=" + std::to_string(processes.nodes) +
         "\ncluster.gpus_per_node=" + std::to_string(processes.per_node) + "\n";
}

/// NeMo RL has one switch for recomputation, and a layout in place of its first and last numbers of layers.
std::string switches_of(const MegatronArguments& arguments, detail::LossList& lost) {
  std::string text;
  if (arguments.contains("pipeline-model-parallel-layout")) {
    for (const char* const end : {"first", "last"})
      text += "policy.megatron_cfg.num_layers_in_" + std::string(end) + "_pipeline_stage=null\n";
  }
  const auto method = arguments.find("recompute-method");
  if (method != arguments.end() && method->second != "uniform")
    lost.add("it recomputes all blocks or none; plan with --recompute always");
  const bool again = arguments.contains("recompute-granularity");
  return text + "policy.megatron_cfg.activation_checkpointing=" + (again ? "true" : "false") + "\n";
}

/// `model.tensor_model_parallel_size=2`, an override a line.
std::string overrides_of(const MegatronRun& run, const Plan& plan, const HydraTrainer& trainer,
                         detail::LossList& lost) {
  MegatronArguments arguments = parse_megatron_arguments(run.arguments);
  const std::size_t chunks = plan.stages.size() / run.lane.programs.size();
  if (chunks > 1) arguments["virtual-pipeline-model-parallel-size"] = std::to_string(chunks);
  if (run.lane.programs.size() == 1) arguments.erase("pipeline-model-parallel-layout");
  std::string text = &trainer == &kNemoRl ? switches_of(arguments, lost) : "";
  for (const Words& words : kWords) {
    const auto found = arguments.find(words.argument);
    if (found == arguments.end()) continue;
    std::string where(words.*trainer.words), key(words.argument), value = found->second;
    if (where.empty()) {
      lost.add("it has no key for --" + key);
      continue;
    }
    std::ranges::replace(key, '-', '_');
    if (value.empty()) value = trainer.yes;
    if (key == "recompute_modules") value = "[" + value + "]";
    where.insert(where.find_first_not_of('+'), trainer.root);
    const bool whole = where.ends_with("per_gpu") || where.ends_with("batch_size");
    text += where + (whole ? "" : "." + key) + "=" + value + "\n";
    if (&trainer == &kBridge && key == "use_distributed_optimizer")
      text += "optimizer." + key + "=" + value + "\n";
  }
  return text + own_words(run, plan, trainer) + precision_words(plan.training, trainer, lost);
}

/// The model, which the recipe or the checkpoint names.
std::string recipe_text(const MegatronRun& run, std::int64_t blocks) {
  std::string text = std::to_string(blocks) + " layers";
  const auto add = [&](const char* name, std::int64_t size) {
    if (size > 0) text += ", " + std::string(name) + " " + std::to_string(size);
  };
  add("width", run.sizes.width);
  add("heads", run.sizes.heads);
  add("key-value heads", run.sizes.key_value_heads);
  add("feed-forward width", run.sizes.feed_forward);
  return text;
}

/// Shell lines that start it.
std::string hydra_launch(const HydraTrainer& trainer, const detail::Processes& processes) {
  if (!trainer.start.empty()) return trainer.start + " $(cat DIR/overrides.txt)\n";
  return "torchrun --nproc-per-node " + std::to_string(processes.per_node) + " --nnodes " +
         std::to_string(processes.nodes) +
         " scripts/training/run_recipe.py --recipe RECIPE --mode pretrain --dataset mock \\\n"
         "  $(cat DIR/overrides.txt)\n";
}

TrainerExport export_overrides(const Plan& plan, Losses losses, const HydraTrainer& trainer) {
  MegatronRun run = megatron_run(plan, losses);
  detail::LossList lost(losses);
  const std::string overrides = overrides_of(run, plan, trainer, lost);
  for (std::string& what : lost.settle(trainer.name)) run.lost.push_back(std::move(what));
  const std::string blocks = parse_megatron_arguments(run.arguments).find("num-layers")->second;
  detail::TrainerNotes notes{
      .trainer = trainer.name + trainer.version,
      .launch = hydra_launch(trainer, detail::processes_of(plan, trainer.name)),
      .yours = {trainer.model + " of the model: " + recipe_text(run, std::stoll(blocks))},
      .not_modelled = {"its fused and Transformer Engine kernels"}};
  if (!trainer.yours.empty()) {
    notes.yours.push_back(trainer.yours);
    notes.not_modelled.emplace_back(
        "generation, and sequences of unequal length: the plan is of the policy's update");
  }
  return {
      {{"overrides.txt", overrides}, {"README.md", detail::trainer_readme(plan, run.lane, notes, run.lost)}},
      run.lost};
}

}  // namespace

TrainerExport export_megatron(const Plan& plan, Losses losses) {
  const MegatronRun run = megatron_run(plan, losses);
  TrainerExport out{.files = {}, .lost = run.lost};
  for (const std::string& what : run.model.unsaid) out.warnings.push_back("model.txt does not say " + what);
  out.files = {{"arguments.txt", run.arguments},
               {"model.txt", run.model.arguments + run.optimizer},
               {"launch.sh", megatron_launcher(plan, run.model.unsaid)},
               {"README.md", detail::trainer_readme(
                                 plan, run.lane, megatron_notes(plan, run.sizes, run.model.unsaid), out.lost)}};
  return out;
}

TrainerExport export_megatron_bridge(const Plan& plan, Losses losses) {
  return export_overrides(plan, losses, kBridge);
}
TrainerExport export_verl(const Plan& plan, Losses losses) { return export_overrides(plan, losses, kVerl); }
TrainerExport export_nemo_rl(const Plan& plan, Losses losses) {
  return export_overrides(plan, losses, kNemoRl);
}

}  // namespace pp::plan

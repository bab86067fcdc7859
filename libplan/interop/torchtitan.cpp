// Source: TorchTitan 0.3.0, whose configuration is Python (torchtitan/config/configs.py, trainer.py,
// models/llama3, distributed/pipeline_parallel.py; released ones before 0.2.2 read TOML). With a CSV file the
// order of operations is the file's, and the schedule's name only says whether ranks hold their stages in turns
// or in a V. The device mesh has tensor members innermost, then data parallelism, then pipelines.
#include <algorithm>
#include <array>
#include <variant>

#include "libplan/interop/block_row.h"
#include "libplan/interop/decoder_shape.h"
#include "libplan/interop/trainer_export.h"
#include "libplan/interop/trainer_rules.h"
#include "libprofile/core/error.h"
#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

const std::string kTorchTitanName = "TorchTitan";
constexpr std::string_view kFillIn = "FILL_IN";

/// A name and a flavor of its models. It has not all of them, and does not start with these words.
struct Flavor {
  std::string_view name = kFillIn, flavor = kFillIn;
  bool known() const { return flavor != kFillIn; }
};

/// Source: models/llama3/__init__.py.
struct LlamaFlavor {
  std::string_view flavor;
  int layers;
  std::int64_t width, heads, feed_forward;
};
constexpr std::array kLlamas{LlamaFlavor{"8B", 32, 4096, 32, 14336}, LlamaFlavor{"70B", 80, 8192, 64, 28672},
                             LlamaFlavor{"405B", 126, 16384, 128, 53248}};
constexpr std::int64_t kLlamaVocabulary = 128256, kLlamaGroups = 8;
constexpr double kLlamaBase = 500000;

/// The frequencies of positions may be scaled or not: they change neither sizes nor times.
bool is_llama(const detail::DecoderShape& shape) {
  return !shape.layer_norm && shape.norm_offset == 0 && shape.gated &&
         shape.activation == GateActivation::silu && !shape.qkv_bias && !shape.out_bias &&
         !shape.feed_forward_bias && !shape.head_norms && shape.rotary_dim == shape.head_width &&
         shape.rotary_base == kLlamaBase && shape.position_rows == 0 && shape.attention_dropout == 0 &&
         shape.hidden_dropout == 0;
}

Flavor flavor_of(const ResolvedModel& model, const detail::BlockRow& row, const detail::LanguageSizes& sizes) {
  const auto read = detail::decoder_shape(model, row);
  const auto* shape = std::get_if<detail::DecoderShape>(&read);
  const bool whole = shape != nullptr && (shape->window == 0 || shape->window >= sizes.sequence);
  if (!whole || !is_llama(*shape) || sizes.tied || sizes.vocabulary != kLlamaVocabulary ||
      sizes.key_value_heads != kLlamaGroups)
    return {};
  for (const LlamaFlavor& known : kLlamas) {
    if (row.size() == known.layers && sizes.width == known.width && sizes.heads == known.heads &&
        sizes.feed_forward == known.feed_forward)
      return {"llama3", known.flavor};
  }
  return {};
}

/// Its own names of the modules of each stage, a list a line.
std::string module_lists(const std::vector<int>& blocks) {
  std::string text;
  int next = 0;
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    std::vector<std::string> names;
    if (s == 0) names.emplace_back("tok_embeddings");
    for (int b = 0; b < blocks[s]; ++b) names.push_back("layers." + std::to_string(next++));
    if (s + 1 == blocks.size()) names.insert(names.end(), {"norm", "lm_head"});
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "\"" : ", \"") + name + "\"";
    text += "                [" + list + "],\n";
  }
  return text;
}

/// A class that holds stages as the lane does. Throws where there is none.
std::string schedule_class(const detail::Lane& lane) {
  const int workers = static_cast<int>(lane.stages.size());
  bool loop = true, v = true;
  for (int w = 0; w < workers; ++w) {
    const std::vector<int>& held = lane.stages[at(w)];
    v = v && held == std::vector{w, 2 * workers - 1 - w};
    for (std::size_t c = 0; c < held.size(); ++c) loop = loop && held[c] == w + static_cast<int>(c) * workers;
    loop = loop && held.size() == lane.stages.front().size();
  }
  if (loop) return lane.stages.front().size() == 1 ? "1F1B" : "Interleaved1F1B";
  if (v) return "ZBVZeroBubble";
  detail::refuse_plan(
      kTorchTitanName,
      "its ranks hold their stages in turns, or two of them in a V; plan with --for torchtitan");
}

std::string optimizer_text(OptimizerName name, detail::LossList& lost) {
  std::string_view text = row_of(name).torchtitan;
  if (text.empty()) {
    lost.add("its optimizers are Adam and AdamW, not " + std::string(name_of(name)) + "; AdamW stands there");
    text = row_of(OptimizerName::adamw).torchtitan;
  }
  return std::string(text);
}

/// Whether every block is recomputed: a setting of the whole model there.
bool recomputes_all(const Plan& plan, const detail::BlockRow& row, detail::Lane& lane, detail::LossList& lost) {
  using Kind = detail::BlockRecompute::Kind;
  const Kind again = detail::block_recompute(plan, row).kind;
  detail::LossList said(Losses::leave_out);
  detail::leave_out_recompute(plan, lane, again == Kind::full || again == Kind::none ? said : lost);
  return again == Kind::full;
}

std::string quoted(const std::string& text) { return '"' + text + '"'; }

/// An argument of a call, a line.
std::string given(const std::string& key, const std::string& value) {
  return "            " + key + "=" + value + ",\n";
}
std::string given(const std::string& key, std::int64_t value) { return given(key, std::to_string(value)); }

std::string parallelism(const Plan& plan, const detail::Lane& lane, const std::vector<int>& blocks) {
  const ShardGroup& shards = plan.shard_group;
  const bool full = shards.degree > 1 && shards.sharding == Sharding::full;
  std::string text = given("data_parallel_replicate_degree", shards.degree > 1 ? lane.replicas() : 1) +
                     given("data_parallel_shard_degree", shards.degree > 1 ? shards.degree : lane.replicas()) +
                     given("fsdp_reshard_after_forward", quoted(full ? "always" : "never")) +
                     given("tensor_parallel_degree", plan.tensor_degree) +
                     given("context_parallel_degree", plan.context_degree) +
                     given("pipeline_parallel_degree", std::ssize(lane.programs));
  if (lane.programs.size() == 1) return text;
  return text + given("pipeline_parallel_schedule", quoted(schedule_class(lane))) +
         given("pipeline_parallel_schedule_csv", quoted("schedule.csv")) +
         given("pipeline_parallel_microbatch_size", plan.training.mini_batch / plan.training.micro_batches) +
         "            module_fqns_per_model_part=[\n" + module_lists(blocks) + "            ],\n";
}

/// Whether products are in a half type and weights in float32: FSDP shards those and gathers half ones.
bool is_mixed(const Training& training) { return training.precision != Precision::plain; }

/// Everything in one type, or weights in float32 and products in a half type.
std::string types(const Training& training) {
  const bool half = training.dtype == DType::bfloat16;
  return given("dtype", quoted(half && !is_mixed(training) ? "bfloat16" : "float32")) +
         given("mixed_precision_param", quoted(half || is_mixed(training) ? "bfloat16" : "float32"));
}

/// Without a pipeline a rank accumulates over micro-batches of its local batch size.
int local_batch(const Plan& plan, const detail::Lane& lane) {
  const Training& training = plan.training;
  const bool pipeline = lane.programs.size() > 1;
  return training.mini_batch / (pipeline ? lane.replicas() : training.micro_batches * groups_of_samples(plan));
}

/// FSDP casts, and with one replica it is off; of a single device autocast takes its place.
bool computes_whole(const Plan& plan, const detail::Lane& lane) {
  return is_mixed(plan.training) && lane.replicas() == 1 && plan.shard_group.degree == 1 &&
         (lane.programs.size() > 1 || group_size(plan) > 1);
}

/// On every node, in the folder: the configuration is imported from it and names the schedule's file.
std::string torchtitan_launcher(const Plan& plan) {
  const detail::Processes processes = detail::processes_of(plan, kTorchTitanName);
  return "#!/usr/bin/env bash\n"
         "# TORCHTITAN=FOLDER [NODE_RANK=n MASTER_ADDR=host] launch.sh MORE ARGUMENTS, on every node\n"
         "# of TorchTitan 0.3.0: git checkout v0.3.0\n"
         "set -euf\n"
         "here=$(dirname \"$0\")\n"
         "if grep -q " +
         std::string(kFillIn) +
         " \"$here/plan_config.py\"; then\n"
         "  echo 'plan_config.py has a model to fill in; README.md says of which sizes' "
         ">&2\n"
         "  exit 1\n"
         "fi\n"
         "torchtitan=$(cd \"${TORCHTITAN:?the folder of TorchTitan}\" && pwd)\n"
         "export PYTHONPATH=\"$torchtitan${PYTHONPATH:+:$PYTHONPATH}\"\n"
         "cd \"$here\"\n"
         "exec torchrun --nproc-per-node " +
         std::to_string(processes.per_node) + " --nnodes " + std::to_string(processes.nodes) +
         " --node-rank \"${NODE_RANK:-0}\" \\\n"
         "  --master-addr \"${MASTER_ADDR:-localhost}\" --master-port \"${MASTER_PORT:-29500}\" \\\n"
         "  -m torchtitan.train --module plan_config --config plan \"$@\"\n";
}

/// Which model it has to be.
std::string sizes_text(const detail::LanguageSizes& sizes, int blocks) {
  const auto count = [](const std::string& name, std::int64_t n) {
    return n > 0 ? ", " + name + " " + std::to_string(n) : "";
  };
  return "one of " + std::to_string(blocks) + " layers" + count("width", sizes.width) +
         count("heads", sizes.heads) + count("key-value heads", sizes.key_value_heads) +
         count("feed-forward width", sizes.feed_forward) + count("vocabulary", sizes.vocabulary);
}

detail::TrainerNotes torchtitan_notes(const Plan& plan, const detail::Lane& lane,
                                      const detail::LanguageSizes& sizes, int blocks, const Flavor& flavor) {
  detail::TrainerNotes notes{
      .trainer = "TorchTitan 0.3.0 (git checkout v0.3.0)",
      .launch = "TORCHTITAN=torchtitan bash launch.sh\n",
      .yours = {"hf_assets_path, dataset, learning rate, steps"},
      .not_modelled = {"torch.compile and its fused kernels, and CUDA graphs: both are off in plan_config.py"}};
  if (plan.shard_group.degree == 1) notes.not_modelled.emplace_back(caveat_of(Trainer::torchtitan));
  if (lane.programs.size() > 1)
    notes.yours.emplace_back(
        "a release from 0.3.0 on: before it gradients of pipelines are too large by the number of valid tokens "
        "(https://github.com/pytorch/torchtitan/issues/2972)");
  if (!flavor.known())
    notes.yours.insert(notes.yours.begin(),
                       "the model of plan_config.py, which has FILL_IN: " + sizes_text(sizes, blocks));
  if (computes_whole(plan, lane)) {
    notes.not_modelled.emplace_back(
        "with one replica its FSDP, which casts to bfloat16, is off, and so is autocast: products are of "
        "float32, which takes longer than planned; plan with --precision plain, or for several replicas");
  }
  return notes;
}

}  // namespace

TrainerExport export_torchtitan(const Plan& plan, Losses losses) {
  detail::LossList lost(losses);
  detail::refuse_mixture(plan, kTorchTitanName);
  detail::Lane lane = detail::lane_of(plan, kTorchTitanName);
  detail::refuse_lone_chunks(plan, lane, kTorchTitanName);
  const ResolvedModel model = resolve(plan.model);
  const detail::BlockRow row = detail::block_row_of(model, kTorchTitanName);
  const std::vector<int> blocks = detail::blocks_of_stages(plan, row, kTorchTitanName);
  detail::leave_out_others(model, row, lost);
  detail::leave_out_unsaid(plan, lane, {}, lost);
  const detail::LanguageSizes sizes = detail::language_sizes(model, row);
  const bool again = recomputes_all(plan, row, lane, lost);
  const auto order = detail::rank_order(plan, lane);
  if (!order || order == detail::RankOrder::pipelines)
    lost.add(
        "its ranks go through the devices stage by stage, with other links than planned; plan with "
        "--placement packed");
  const Flavor flavor = flavor_of(model, row, sizes);
  const std::string config =
      "# " + plan.model.name +
      "\nfrom torchtitan.components.loss import CrossEntropyLoss\n"
      "from torchtitan.components.optimizer import default_adamw, LRSchedulersContainer\n"
      "from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig\n" +
      (again ? "from torchtitan.distributed.activation_checkpoint import FullAC\n" : "") +
      "from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader\n"
      "from torchtitan.models.common.config_utils import decoder_vocab_size\n"
      "from torchtitan.models." +
      std::string(flavor.name) +
      " import model_registry\nfrom torchtitan.trainer import Trainer\n\n\n"
      "def plan() -> Trainer.Config:\n"
      "    model_spec = model_registry(" +
      quoted(std::string(flavor.flavor)) +
      ")\n    return Trainer.Config(\n"
      "        model_spec=model_spec,\n"
      "        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),\n"
      "        hf_assets_path=\"./assets/hf\",  # yours\n"
      "        dataloader=HuggingFaceTextDataLoader.Config(dataset=\"c4\"),  # yours\n"
      "        optimizer=" +
      optimizer_text(plan.training.optimizer, lost) +
      ",  # the rate is yours\n"
      "        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=200),  # yours\n"
      "        training=TrainingConfig(\n" +
      given("local_batch_size", local_batch(plan, lane)) +
      given("global_batch_size", plan.training.mini_batch) +
      (sizes.sequence > 0 ? given("seq_len", sizes.sequence) : "") + types(plan.training) +
      given("disable_cuda_graphs", "True") + "            steps=1000,  # yours\n        ),\n" +
      "        parallelism=ParallelismConfig(\n" + parallelism(plan, lane, blocks) +
      "        ),\n        activation_checkpoint=" + (again ? "FullAC.Config()" : "None") +
      ",\n        compile=CompileConfig(enable=False),\n    )\n";
  TrainerExport out;
  out.lost = lost.settle(kTorchTitanName);
  if (!flavor.known())
    out.warnings.emplace_back(
        "plan_config.py names no model: none of TorchTitan's flavors of Llama 3 is this one");
  out.files = {{"plan_config.py", config}, {"launch.sh", torchtitan_launcher(plan)}};
  if (lane.programs.size() > 1) out.files.push_back({"schedule.csv", detail::schedule_csv(lane)});
  out.files.push_back(
      {"README.md",
       detail::trainer_readme(plan, lane, torchtitan_notes(plan, lane, sizes, row.size(), flavor), out.lost)});
  return out;
}

}  // namespace pp::plan

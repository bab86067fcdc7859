// Source: TorchTitan 0.2.1, which reads TOML (torchtitan/config/job_config.py, models/llama3/__init__.py,
// distributed/pipeline_parallel.py); later ones take the same names in Python (pull request 2386). With a CSV
// file the order of operations is the file's, and the schedule's name only says whether ranks hold their stages
// in turns or in a V. The device mesh has tensor members innermost, then data parallelism, then pipelines.
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

[[noreturn]] void refuse_torchtitan(const std::string& why) {
  throw Error(ErrorKind::data, kTorchTitanName + " cannot run this plan: " + why);
}

/// A name and a flavor of its models. It has not all of them, and does not start with these words.
struct Flavor {
  std::string_view name = kFillIn, flavor = kFillIn;
  bool known() const { return flavor != kFillIn; }
};

/// Source: models/llama3/__init__.py and model/args.py of 0.2.1.
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

/// Its own names of the modules of each stage: `["tok_embeddings", "layers.0"], ["layers.1", "norm",
/// "output"]`.
std::string module_lists(const std::vector<int>& blocks) {
  std::string text;
  int next = 0;
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    std::string names = s == 0 ? "\"tok_embeddings\"" : "";
    const auto add = [&](const std::string& name) { names += (names.empty() ? "\"" : ", \"") + name + "\""; };
    for (int b = 0; b < blocks[s]; ++b) add("layers." + std::to_string(next++));
    if (s + 1 == blocks.size()) {
      add("norm");
      add("output");
    }
    text += "  [" + names + "],\n";
  }
  return "module_fqns_per_model_part = [\n" + text + "]\n";
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
  refuse_torchtitan("its ranks hold their stages in turns, or two of them in a V; plan with --for torchtitan");
}

std::string optimizer_name(OptimizerName name, detail::LossList& lost) {
  if (name == OptimizerName::adam) return "Adam";
  if (name != OptimizerName::adamw)
    lost.add("its optimizers are Adam and AdamW, not " + std::string(name_of(name)) + "; AdamW stands there");
  return "AdamW";
}

/// Activation checkpointing is a setting of the whole model there.
std::string checkpoint_mode(const Plan& plan, const detail::BlockRow& row, detail::Lane& lane,
                            detail::LossList& lost) {
  using Kind = detail::BlockRecompute::Kind;
  const Kind again = detail::block_recompute(plan, row).kind;
  detail::LossList said(Losses::leave_out);
  detail::leave_out_recompute(plan, lane, again == Kind::full || again == Kind::none ? said : lost);
  return again == Kind::full ? "full" : "none";
}

class Toml {
 public:
  Toml& table(const std::string& name) { return line((text_.empty() ? "[" : "\n[") + name + "]"); }
  Toml& set(const std::string& key, std::int64_t value) { return line(key + " = " + std::to_string(value)); }
  Toml& set(const std::string& key, const std::string& value) { return line(key + " = \"" + value + "\""); }
  Toml& line(const std::string& text) {
    text_ += text + "\n";
    return *this;
  }
  Toml& raw(const std::string& text) {
    text_ += text;
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_parallelism(Toml& toml, const Plan& plan, const detail::Lane& lane, const std::vector<int>& blocks) {
  toml.table("parallelism")
      .set("data_parallel_replicate_degree", 1)
      .set("data_parallel_shard_degree", lane.replicas())
      .set("fsdp_reshard_after_forward", "never")
      .set("tensor_parallel_degree", plan.tensor_degree)
      .set("context_parallel_degree", plan.context_degree)
      .set("pipeline_parallel_degree", std::ssize(lane.programs));
  if (lane.programs.size() == 1) return;
  toml.set("pipeline_parallel_schedule", schedule_class(lane))
      .set("pipeline_parallel_schedule_csv", "schedule.csv")
      .set("pipeline_parallel_microbatch_size", plan.training.mini_batch / plan.training.micro_batches)
      .raw(module_lists(blocks));
}

/// Whether products are in a half type and weights in float32: FSDP shards those and gathers half ones.
bool is_mixed(const Training& training) { return training.precision != Precision::plain; }

/// Everything in one type, or weights in float32 and products in a half type.
void add_types(Toml& toml, const Training& training) {
  const bool half = training.dtype == DType::bfloat16;
  toml.set("dtype", half && !is_mixed(training) ? "bfloat16" : "float32")
      .set("mixed_precision_param", half || is_mixed(training) ? "bfloat16" : "float32");
}

/// Without a pipeline a rank accumulates over micro-batches of its local batch size.
int local_batch(const Plan& plan, const detail::Lane& lane) {
  const Training& training = plan.training;
  const bool pipeline = lane.programs.size() > 1;
  return training.mini_batch / (pipeline ? lane.replicas() : training.micro_batches);
}

/// FSDP casts, and with one replica it is off; of a single device autocast takes its place.
bool computes_whole(const Plan& plan, const detail::Lane& lane) {
  return is_mixed(plan.training) && lane.replicas() == 1 && (lane.programs.size() > 1 || group_size(plan) > 1);
}

/// On every node, in the folder: the config names the schedule's file.
std::string torchtitan_launcher(const Plan& plan) {
  const detail::Processes processes = detail::processes_of(plan, kTorchTitanName);
  return "#!/usr/bin/env bash\n"
         "# TORCHTITAN=FOLDER [NODE_RANK=n MASTER_ADDR=host] launch.sh MORE ARGUMENTS, on every node\n"
         "# of TorchTitan 0.2.1: git checkout v0.2.1; later ones read no TOML\n"
         "set -euf\n"
         "here=$(dirname \"$0\")\n"
         "if grep -q '\"" +
         std::string(kFillIn) +
         "\"' \"$here/config.toml\"; then\n"
         "  echo 'config.toml has entries to fill in: model.name, model.flavor; README.md says of which sizes' "
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
         "  -m torchtitan.train --job.config_file config.toml \"$@\"\n";
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
      .trainer = "TorchTitan 0.2.1 (git checkout v0.2.1; later ones read no TOML)",
      .launch = "TORCHTITAN=torchtitan bash launch.sh\n",
      .yours = {"hf_assets_path, dataset, learning rate, steps"},
      .not_modelled = {std::string(caveat_of(Trainer::torchtitan)),
                       "torch.compile and its fused kernels: [compile] of config.toml is off"}};
  if (!flavor.known())
    notes.yours.insert(notes.yours.begin(), "model.name and model.flavor: " + sizes_text(sizes, blocks));
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
  const ResolvedModel model = resolve(plan.model);
  const detail::BlockRow row = detail::block_row_of(model, kTorchTitanName);
  const std::vector<int> blocks = detail::blocks_of_stages(plan, row, kTorchTitanName);
  detail::leave_out_others(model, row, lost);
  detail::leave_out_unsaid(plan, lane, {}, lost);
  const detail::LanguageSizes sizes = detail::language_sizes(model, row);
  const std::string mode = checkpoint_mode(plan, row, lane, lost);
  const auto order = detail::rank_order(plan, lane);
  if (!order || order == detail::RankOrder::pipelines)
    lost.add(
        "its ranks go through the devices stage by stage, with other links than planned; plan with "
        "--placement packed");
  Toml toml;
  toml.table("job").set("dump_folder", "outputs").set("description", plan.model.name);
  const Flavor flavor = flavor_of(model, row, sizes);
  toml.table("model").set("name", std::string(flavor.name)).set("flavor", std::string(flavor.flavor));
  toml.line("hf_assets_path = \"./assets/hf\"  # yours");
  toml.table("optimizer").set("name", optimizer_name(plan.training.optimizer, lost)).line("lr = 3e-4  # yours");
  toml.table("lr_scheduler").line("warmup_steps = 200  # yours");
  toml.table("training")
      .set("local_batch_size", local_batch(plan, lane))
      .set("global_batch_size", plan.training.mini_batch);
  if (sizes.sequence > 0) toml.set("seq_len", sizes.sequence);
  add_types(toml, plan.training);
  toml.line("steps = 1000  # yours").line("dataset = \"c4\"  # yours");
  add_parallelism(toml, plan, lane, blocks);
  toml.table("activation_checkpoint").set("mode", mode);
  toml.table("compile")
      .line("enable = false  # true fuses kernels: less time and memory, which the plan does not count")
      .line("components = [\"model\", \"loss\"]");
  TrainerExport out;
  out.lost = lost.settle(kTorchTitanName);
  if (!flavor.known())
    out.warnings.emplace_back(
        "config.toml names no model: none of TorchTitan's flavors of Llama 3 is this one");
  out.files = {{"config.toml", toml.text()}, {"launch.sh", torchtitan_launcher(plan)}};
  if (lane.programs.size() > 1) out.files.push_back({"schedule.csv", detail::schedule_csv(lane)});
  out.files.push_back(
      {"README.md",
       detail::trainer_readme(plan, lane, torchtitan_notes(plan, lane, sizes, row.size(), flavor), out.lost)});
  return out;
}

}  // namespace pp::plan

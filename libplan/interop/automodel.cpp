// Source: NeMo AutoModel 0.7 (nemo_automodel/recipes/_dist_utils.py,
// components/distributed/pipelining/config.py, cli/app.py, and the recipes of examples/). Modules are those of
// transformers.
#include <nlohmann/json.hpp>

#include "libplan/interop/trainer_export.h"
#include "libprofile/core/index.h"
#include "libprofile/core/model/product_flops.h"

namespace pp::plan {
namespace {

const std::string kAutoModelName = "NeMo AutoModel";

/// JSON is YAML.
std::string list_text(const std::vector<std::string>& names) { return Json(names).dump(); }

std::string pipeline_text(const Plan& plan, const detail::Lane& lane,
                          const std::vector<std::vector<std::string>>& modules) {
  if (lane.programs.size() == 1) return "";
  const bool several = lane.stages.front().size() > 1;
  const bool v = several && lane.stages.front().back() == std::ssize(plan.stages) - 1;
  std::string text = "  pipeline:\n    pp_schedule: " +
                     std::string(v         ? "ZBVZeroBubble"
                                 : several ? "interleaved1f1b"
                                           : "1f1b") +
                     "  # says how ranks hold stages; the order is the file's\n"
                     "    pp_schedule_csv: schedule.csv\n    pp_microbatch_size: " +
                     std::to_string(plan.training.mini_batch / plan.training.micro_batches) +
                     "\n    pp_batch_size: " + std::to_string(plan.training.mini_batch / lane.replicas()) +
                     "\n    scale_grads_in_schedule: false\n    module_fqns_per_model_part:\n";
  for (const std::vector<std::string>& names : modules) text += "      - " + list_text(names) + "\n";
  return text;
}

/// Activation checkpointing is a setting of the whole model there.
bool all_again(const Plan& plan, detail::Lane& lane, detail::LossList& lost) {
  const bool all = plan.schedule.recompute == RecomputePolicy::always || detail::is_checkpointed(plan);
  detail::LossList said(Losses::leave_out);
  detail::leave_out_recompute(plan, lane, all ? said : lost);
  return all;
}

detail::TrainerNotes automodel_notes(const Plan& plan) {
  const detail::Processes processes = detail::processes_of(plan, kAutoModelName);
  std::string launch =
      "cd DIR && automodel config.yaml --nproc-per-node " + std::to_string(processes.per_node) + "\n";
  if (processes.nodes > 1)
    launch += "# on " + std::to_string(processes.nodes) + " nodes: by its launchers for Slurm or Kubernetes\n";
  return {
      .trainer = "NeMo AutoModel (0.7)",
      .launch = launch,
      .yours = {"model.pretrained_model_name_or_path", "dataset, loss, learning rate, steps"},
      .not_modelled = {plan.shard_group.degree > 1
                           ? "weights that FSDP keeps gathered from a forward to its backward"
                           : "FSDP: gradients and weights are sharded between steps, too, so memory is less "
                             "than planned where replicas are several (estimate with --shard-degree)",
                       "its patched kernels"}};
}

}  // namespace

TrainerExport export_automodel(const Plan& plan, Losses losses) {
  detail::LossList lost(losses);
  detail::refuse_mixture(plan, kAutoModelName);
  detail::Lane lane = detail::lane_of(plan, kAutoModelName);
  detail::refuse_lone_chunks(plan, lane, kAutoModelName);
  const auto modules = detail::stage_modules(plan, kAutoModelName, lost);
  const bool again = all_again(plan, lane, lost);
  detail::leave_out_unsaid(plan, lane, {}, lost);
  if (plan.training.precision == Precision::mixed)
    lost.add("it keeps weights in the type they are loaded in; plan with --precision autocast");
  const Training& training = plan.training;
  const bool pipeline = lane.programs.size() > 1;
  const std::int64_t tokens = tokens_per_sample(resolve(plan.model));
  TrainerExport out;
  out.lost = lost.settle(kAutoModelName);
  std::string text =
      "recipe:\n  _target_: nemo_automodel.recipes.llm.train_ft.TrainFinetuneRecipeForNextTokenPrediction\n\n"
      "step_scheduler:\n  global_batch_size: " +
      std::to_string(training.mini_batch) + "\n  local_batch_size: " +
      std::to_string(training.mini_batch /
                     (pipeline ? lane.replicas() : training.micro_batches * groups_of_samples(plan))) +
      "\n  max_steps: 1000  # yours\n\n"
      "model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
      "  pretrained_model_name_or_path: NAME  # yours\n  torch_dtype: " +
      std::string(training.dtype == DType::bfloat16 && training.precision == Precision::plain ? "bf16"
                                                                                              : "float32") +
      "\n\ndistributed:\n  strategy: fsdp2\n  dp_size: " +
      std::to_string(lane.replicas() * plan.shard_group.degree) +
      (plan.shard_group.degree > 1 ? "\n  dp_replicate_size: " + std::to_string(lane.replicas()) : "") +
      "\n  tp_size: " + std::to_string(plan.tensor_degree) +
      "\n  pp_size: " + std::to_string(lane.programs.size()) +
      "\n  cp_size: " + std::to_string(plan.context_degree) +
      "\n  sequence_parallel: " + (detail::splits_sequence(plan) ? "true" : "false") +
      "\n  activation_checkpointing: " + (again ? "true" : "false") + "\n" +
      pipeline_text(plan, lane, modules) +
      "\ndataset:  # yours\n  _target_: nemo_automodel.components.datasets.llm.mock_iterable_dataset."
      "MockIterableDataset\n  vocab_size: 100\n  num_samples: 1000000\n" +
      (tokens > 0 ? "  seq_len: " + std::to_string(tokens) + "\n" : "") +
      "\ndataloader:\n  _target_: torch.utils.data.DataLoader\n  batch_size: null\n\n"
      "loss_fn:\n  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy\n\n"
      "optimizer:\n  _target_: torch.optim." +
      std::string(row_of(training.optimizer).torch_class) + "\n  lr: 1.0e-5  # yours\n";
  out.files = {{"config.yaml", std::move(text)}};
  if (pipeline) out.files.push_back({"schedule.csv", detail::schedule_csv(lane)});
  out.files.push_back({"README.md", detail::trainer_readme(plan, lane, automodel_notes(plan), out.lost)});
  return out;
}

}  // namespace pp::plan

// Source: DeepSpeed 0.19 (runtime/pipe/module.py, engine.py, schedule.py; its tutorial of pipelines) and
// diffusion-pipe, examples/main_example.toml. A stage is a slice of a list of layers: what stands in front of
// the blocks, each block, what stands behind them. The order is 1F1B; gradients are added up after the last
// backward.
#include <nlohmann/json.hpp>

#include "libplan/interop/block_row.h"
#include "libplan/interop/megatron_model.h"
#include "libplan/interop/trainer_export.h"
#include "libprofile/core/text.h"

namespace pp::plan {

namespace {

/// What is divided among replicas: nothing, the optimizer's state, gradients too, weights too.
int zero_stage(const Plan& plan) {
  if (plan.shard_group.degree > 1) return plan.shard_group.sharding == Sharding::full ? 3 : 2;
  return plan.training.shard == Shard::optimizer ? 1 : 0;
}

}  // namespace

TrainerExport export_deepspeed(const Plan& plan, Losses losses) {
  const std::string trainer = "DeepSpeed";
  detail::LossList lost(losses);
  detail::refuse_mixture(plan, trainer);
  if (plan.tensor_degree > 1 || plan.context_degree > 1)
    detail::refuse_plan(trainer,
                        "its pipelines split no layer over GPUs; plan with a profile without --tensor and "
                        "--context-parallel");
  detail::Lane lane = detail::lane_of(plan, trainer, detail::Copies::allowed);
  if (lane.programs.size() != plan.stages.size())
    detail::refuse_plan(trainer, "it has one stage on each worker; plan with --for deepspeed");
  const ResolvedModel model = resolve(plan.model);
  const detail::BlockRow row = detail::block_row_of(model, trainer);
  const std::vector<int> blocks = detail::blocks_of_stages(plan, row, trainer);
  detail::leave_out_unsaid(plan, lane, {.overlap = false}, lost);
  const detail::BlockRecompute again = detail::block_recompute(plan, row);
  const bool all = again.kind == detail::BlockRecompute::Kind::full;
  detail::LossList said(Losses::leave_out);
  detail::leave_out_recompute(plan, lane,
                              all || again.kind == detail::BlockRecompute::Kind::none ? said : lost);
  detail::check_order(plan, lane, lost);
  const Training& training = plan.training;
  const bool half = training.dtype == DType::bfloat16;
  if (training.precision == Precision::autocast)
    lost.add("it keeps half weights beside a float32 master; plan with --precision mixed");
  if (half && training.precision == Precision::plain)
    lost.add("it keeps a float32 master of half weights; plan with --precision mixed");
  const int micro_batch = training.mini_batch / training.micro_batches / groups_of_samples(plan);
  const bool shards = plan.shard_group.degree > 1;
  if (shards && lane.replicas() > 1)
    lost.add("it shards over all GPUs; estimate with --shard-degree " + std::to_string(gpu_count(plan)));
  Json config{{"train_batch_size", training.mini_batch},
              {"train_micro_batch_size_per_gpu", micro_batch},
              {"gradient_accumulation_steps", lane.micro_batches},
              {"zero_optimization", {{"stage", zero_stage(plan)}}},
              {"bf16", {{"enabled", half}}},
              {"optimizer", {{"type", row_of(training.optimizer).torch_class}, {"params", {{"lr", 3e-4}}}}}};
  std::string split;
  int layers = 1;
  for (std::size_t s = 0; s + 1 < blocks.size(); ++s)
    split += (s > 0 ? ", " : "") + std::to_string(layers += blocks[s]);
  TrainerExport out;
  out.lost = lost.settle(trainer);
  detail::TrainerNotes notes{
      .trainer = "DeepSpeed (0.19)",
      .launch = "deepspeed --num_gpus " + std::to_string(detail::processes_of(plan, trainer).per_node) +
                " train.py  # yours, with deepspeed.initialize(config='ds_config.json')\n",
      .yours = {"a PipelineModule of num_stages=" + std::to_string(blocks.size()) +
                    (all ? ", activation_checkpoint_interval=1" : "") +
                    " over the list of layers: one in front of the " + counted(row.size(), "block") +
                    ", the blocks, the rest",
                "its cuts: partition_method knows even ones alone; a trainer with partition_split, such as "
                "diffusion-pipe or qlora-pipe, takes partition.toml",
                "data, learning rate, number of steps"},
      .not_modelled = {"its fused Adam, buckets and the copies of pipeline messages"}};
  out.files = {{"ds_config.json", dump_json(config)}};
  if (shards) {
    notes.yours = {all ? "the model, with activation checkpointing in every block" : "the model",
                   "data, learning rate, number of steps"};
  } else {
    out.files.push_back(
        {"partition.toml", "pipeline_stages = " + std::to_string(blocks.size()) +
                               "\nmicro_batch_size_per_gpu = " + std::to_string(micro_batch) +
                               "\ngradient_accumulation_steps = " + std::to_string(lane.micro_batches) +
                               "\nactivation_checkpointing = " + (all ? "true" : "false") +
                               "\npartition_method = 'manual'\npartition_split = [" + split + "]\n"});
  }
  out.files.push_back({"README.md", detail::trainer_readme(plan, lane, notes, out.lost)});
  return out;
}

}  // namespace pp::plan

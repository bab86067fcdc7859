// Folders that trainers are started from. Each option was looked up in the trainer's public sources, which the
// exporters name; the texts here are written out by hand from them.
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "libplan/interop/block_row.h"
#include "libplan/interop/trainer_export.h"
#include "tests/libplan/interop/exports.h"
#include "tests/support/doctest.h"
#include "tests/support/plans.h"

TEST_SUITE_BEGIN("libplan/interop/trainer_folders");

namespace pp::plan::trainer_folders_test {
namespace {

using test::file;
using test::language;
using test::layer;
using test::refusal;

/// Cut in front of these blocks.
Plan plan_of(int blocks, const std::vector<int>& cuts, const std::vector<int>& replicas = {},
             const std::string& schedule = "hybrid") {
  std::vector<int> layers;
  for (const int block : cuts) layers.push_back(1 + 5 * block);
  return ::make_plan({.model = language(blocks), .cuts = layers, .replicas = replicas, .schedule = schedule});
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string megatron(const Plan& plan, Losses losses = Losses::refuse) {
  return file(export_megatron(plan, losses), "arguments.txt");
}

/// The plan recomputes these layers of a block.
void run_again(Plan& plan, int block, const std::vector<std::string>& names) {
  plan.schedule.recompute = RecomputePolicy::per_stage;
  for (const std::string& name : names) {
    const std::string layer = "h." + std::to_string(block) + "." + name;
    for (Stage& stage : plan.stages)
      if (std::ranges::find(stage.layers, layer) != stage.layers.end()) stage.recompute.push_back(layer);
  }
}

const std::vector<std::string> kAll{"norm", "attention", "up", "act", "down"};
}  // namespace

TEST_CASE("sizes of a language model are read off its layers") {
  const ResolvedModel model = resolve(language(3));
  const detail::BlockRow row = detail::block_row_of(model, "test");
  CHECK(row.begins == std::vector<std::size_t>{1, 6, 11});
  CHECK(row.end == 16);
  CHECK(detail::language_sizes(model, row) ==
        detail::LanguageSizes{
            .sequence = 8, .vocabulary = 16, .width = 4, .feed_forward = 8, .heads = 2, .key_value_heads = 0});
}

TEST_CASE("Megatron: a folder of arguments, sizes, a launcher and a page") {
  Plan plan = plan_of(3, {1}, {2, 2});
  plan.tensor_degree = 4;
  const TrainerExport out = export_megatron(plan, Losses::refuse);
  CHECK(file(out, "arguments.txt") ==
        "--pipeline-model-parallel-size 2\n"
        "--pipeline-model-parallel-layout Et|t*2L\n"
        "--num-layers 3\n"
        "--micro-batch-size 2\n"
        "--global-batch-size 8\n"
        "--tensor-model-parallel-size 4\n"
        "--sequence-parallel\n");
  CHECK(file(out, "model.txt") ==
        "--seq-length 8\n"
        "--max-position-embeddings 8\n"
        "--hidden-size 4\n"
        "--ffn-hidden-size 8\n"
        "--num-attention-heads 2\n"
        "--untie-embeddings-and-output-weights\n"
        "--optimizer sgd\n");
  // Four groups of four GPUs on the one node.
  const std::string launcher = file(out, "launch.sh");
  CHECK(has(launcher, "torchrun --nproc-per-node 16 --nnodes 1 "));
  // Megatron-LM asserts it of tensor groups, before Blackwell.
  CHECK(has(launcher, "export CUDA_DEVICE_MAX_CONNECTIONS=1\n"));
  // Its blocks have no sums: nothing that Megatron-LM's arguments describe, which all say.
  const std::string why =
      "norms, feed-forward network, positions, biases, dropout: h.0.attention sees later positions";
  CHECK(out.warnings == std::vector{"model.txt does not say " + why});
  CHECK(has(launcher, "warning: model.txt does not say all of the model"));
  const std::string page = file(out, "README.md");
  CHECK(page.starts_with("# language for Megatron-LM"));
  CHECK(has(page, "| pipeline, data, tensor, context degree | 2, 2, 4, 1 |\n"));
  CHECK(has(page, "| mini-batch | 8 samples in 4 micro-batches |\n"));
  CHECK(has(page, "\n## Not modelled\n"));
  CHECK(has(page, "- what model.txt does not say: " + why + "\n"));
  // Sixteen words, of which the null tokenizer adds one.
  CHECK(has(
      page,
      "--mock-data --split 99,1,0 --tokenizer-type NullTokenizer --vocab-size 15 --lr 3e-4 --train-iters 20 "));
  CHECK_FALSE(has(page, "Left out of the plan"));
}

TEST_CASE("Megatron: an overlap that the plan counts is asked for, and one that it does not is named") {
  Plan plan = plan_of(3, {1}, {2, 2});
  const auto says = [&](const std::string& part) {
    return has(file(export_megatron(plan, Losses::refuse), "README.md"), part);
  };
  CHECK_FALSE(has(megatron(plan), "--overlap"));
  CHECK(says("these arguments do not ask for: --overlap-grad-reduce"));
  plan.predicted.all_reduce_overlap = 1;
  CHECK(megatron(plan).ends_with("--overlap-grad-reduce\n"));
  CHECK_FALSE(says("do not ask for"));
  plan.training.shard = Shard::optimizer;  // whose weights are gathered, too
  CHECK(
      megatron(plan).ends_with("--use-distributed-optimizer\n--overlap-grad-reduce\n--overlap-param-gather\n"));
}

TEST_CASE("all: GPUs that torchrun cannot start, because nodes have several numbers of them, are refused") {
  // Three of node a and one of node b: torchrun would start 2 x 3 processes, or 2 x 1.
  Plan plan = plan_of(3, {1}, {2, 2});
  plan.training.optimizer = OptimizerName::adamw;
  for (Device& device : plan.devices) device.node = "a";
  plan.devices[3].node = "b";
  const std::string why =
      " cannot run this plan: it uses 3 GPUs of node a and 1 of node b, and torchrun starts as many processes "
      "on "
      "each; plan with --for megatron or torchtitan, which looks for plans on whole nodes";
  CHECK(refusal([&] { export_megatron(plan, Losses::leave_out); }) == "Megatron-LM" + why);
  CHECK(refusal([&] { export_torchtitan(plan, Losses::leave_out); }) == "TorchTitan" + why);
  CHECK(refusal([&] { export_automodel(plan, Losses::leave_out); }) == "NeMo AutoModel" + why);
  plan.devices[2].node = "b";
  CHECK(has(file(export_megatron(plan, Losses::refuse), "launch.sh"), "--nproc-per-node 2 --nnodes 2 "));
}

TEST_CASE("the page says how much of a device's memory was planned with") {
  Plan plan = plan_of(3, {1}, {2, 2});
  plan.predicted.workers.resize(4);
  for (WorkerPrediction& worker : plan.predicted.workers) worker.memory.peak = Bytes(50LL << 30);
  for (Device& device : plan.devices) device.memory = Bytes(80LL << 30);
  const auto page = [&] { return file(export_megatron(plan, Losses::refuse), "README.md"); };
  CHECK(has(
      page(),
      "| peak of a device | 50 GiB of 80 GiB, planned within 95 % of it; --memory-limit plans with less |\n"));
  plan.context["memory_limit_bytes"] = std::to_string(70LL << 30);
  CHECK(has(page(), "50 GiB of 80 GiB, planned within 70 GiB (--memory-limit) |\n"));
}

TEST_CASE("Megatron: ranks follow its own order, its other order, or are named") {
  // Workers 0 and 1 are the replicas of stage 0, on devices 0 and 1.
  Plan plan = plan_of(3, {1}, {2, 2});
  CHECK_FALSE(has(megatron(plan), "mapping"));
  std::swap(plan.workers[1].device, plan.workers[2].device);  // a replica's stages on devices 0 and 1
  CHECK(has(megatron(plan), "--use-tp-pp-dp-mapping\n"));
  std::swap(plan.workers[2].device, plan.workers[3].device);
  CHECK(has(refusal([&] { export_megatron(plan, Losses::refuse); }), "plan with --placement packed"));
  const TrainerExport out = export_megatron(plan, Losses::leave_out);
  CHECK(out.lost.size() == 1);
  CHECK(has(file(out, "README.md"), "\n## Left out of the plan\n\n- its ranks go through the devices"));
}

TEST_CASE("Megatron: all recomputation that its options can say, and no other") {
  const auto flags = [](const std::function<void(Plan&)>& change) {
    Plan plan = plan_of(4, {2});
    change(plan);
    const std::string text = megatron(plan);
    const std::size_t at = text.find("--recompute");
    return at == text.npos ? "" : text.substr(at);
  };
  CHECK(flags([](Plan&) {}).empty());
  const std::string full = "--recompute-granularity full\n";
  CHECK(flags([](Plan& plan) {
          for (int b = 0; b < 4; ++b) run_again(plan, b, kAll);
        }) == full + "--recompute-method uniform\n--recompute-num-layers 1\n");
  CHECK(flags([](Plan& plan) {
          for (int b = 0; b < 4; ++b) run_again(plan, b, {"attention"});
        }) == "--recompute-granularity selective\n--recompute-modules core_attn\n");
  // Stages hold blocks 0, 1 and 2, 3: the first of each.
  CHECK(flags([](Plan& plan) {
          for (const int b : {0, 2}) run_again(plan, b, kAll);
        }) == full + "--recompute-method block\n--recompute-num-layers 1\n");
  const auto other = [](const std::function<void(Plan&)>& change) {
    Plan plan = plan_of(4, {2});
    change(plan);
    return refusal([&] { export_megatron(plan, Losses::refuse); });
  };
  CHECK(has(other([](Plan& plan) { run_again(plan, 0, kAll); }), "forwards of stage 0 do not run again"));
  CHECK(has(other([](Plan& plan) {
              for (const int b : {1, 3}) run_again(plan, b, kAll);  // not the first
            }),
            "do not run again"));
  CHECK(has(other([](Plan& plan) {
              for (int b = 0; b < 4; ++b) run_again(plan, b, {"act"});
            }),
            "do not run again"));
}

TEST_CASE("Megatron: embedding and head may share weights over the first and last stage") {
  const Plan tied = ::make_plan({.model = language(3, true), .cuts = {6}, .schedule = "hybrid"});
  REQUIRE(tied.tied.size() == 1);
  const TrainerExport out = export_megatron(tied, Losses::refuse);
  CHECK(has(file(out, "arguments.txt"), "Et|t*2L"));
  CHECK_FALSE(has(file(out, "model.txt"), "--untie"));
  Plan elsewhere = tied;
  elsewhere.tied[0].stages = {StageId{1}};
  CHECK(has(refusal([&] { export_megatron(elsewhere, Losses::refuse); }), "other than the first and the last"));
}

TEST_CASE("Megatron: half weights have a float32 master, which a plan must know") {
  Plan plan = plan_of(3, {1});
  plan.training.dtype = DType::bfloat16;
  CHECK(has(refusal([&] { export_megatron(plan, Losses::refuse); }),
            "it keeps a float32 master and gradients of half weights"));
  plan.training.precision = Precision::mixed;
  CHECK(has(megatron(plan), "--bf16\n"));
  plan.training.optimizer = OptimizerName::adagrad;
  CHECK(has(refusal([&] { export_megatron(plan, Losses::refuse); }),
            "its optimizers are Adam and SGD, not adagrad"));
}

TEST_CASE("TorchTitan: a whole file, its own names of modules, the order of operations") {
  Plan plan = plan_of(3, {1}, {2, 2});
  plan.training.optimizer = OptimizerName::adamw;
  plan.training.precision = Precision::autocast;
  plan.training.dtype = DType::bfloat16;
  const TrainerExport out = export_torchtitan(plan, Losses::refuse);
  CHECK(file(out, "plan_config.py") ==
        "# language\n"
        "from torchtitan.components.loss import CrossEntropyLoss\n"
        "from torchtitan.components.optimizer import default_adamw, LRSchedulersContainer\n"
        "from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig\n"
        "from torchtitan.hf_datasets.text_datasets import HuggingFaceTextDataLoader\n"
        "from torchtitan.models.common.config_utils import decoder_vocab_size\n"
        "from torchtitan.models.FILL_IN import model_registry\n"
        "from torchtitan.trainer import Trainer\n"
        "\n\n"
        "def plan() -> Trainer.Config:\n"
        "    model_spec = model_registry(\"FILL_IN\")\n"
        "    return Trainer.Config(\n"
        "        model_spec=model_spec,\n"
        "        loss=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec)),\n"
        "        hf_assets_path=\"./assets/hf\",  # yours\n"
        "        dataloader=HuggingFaceTextDataLoader.Config(dataset=\"c4\"),  # yours\n"
        "        optimizer=default_adamw(lr=3e-4),  # the rate is yours\n"
        "        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=200),  # yours\n"
        "        training=TrainingConfig(\n"
        "            local_batch_size=4,\n"
        "            global_batch_size=8,\n"
        "            seq_len=8,\n"
        "            dtype=\"float32\",\n"
        "            mixed_precision_param=\"bfloat16\",\n"
        "            disable_cuda_graphs=True,\n"
        "            steps=1000,  # yours\n"
        "        ),\n"
        "        parallelism=ParallelismConfig(\n"
        "            data_parallel_replicate_degree=1,\n"
        "            data_parallel_shard_degree=2,\n"
        "            fsdp_reshard_after_forward=\"never\",\n"
        "            tensor_parallel_degree=1,\n"
        "            context_parallel_degree=1,\n"
        "            pipeline_parallel_degree=2,\n"
        "            pipeline_parallel_schedule=\"1F1B\",\n"
        "            pipeline_parallel_schedule_csv=\"schedule.csv\",\n"
        "            pipeline_parallel_microbatch_size=2,\n"
        "            module_fqns_per_model_part=[\n"
        "                [\"tok_embeddings\", \"layers.0\"],\n"
        "                [\"layers.1\", \"layers.2\", \"norm\", \"lm_head\"],\n"
        "            ],\n"
        "        ),\n"
        "        activation_checkpoint=None,\n"
        "        compile=CompileConfig(enable=False),\n"
        "    )\n");
  // 1F1B of two micro-batches in each replica.
  CHECK(file(out, "schedule.csv") == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  CHECK(
      has(file(out, "README.md"), "one of 3 layers, width 4, heads 2, feed-forward width 8, vocabulary 16\n"));
  CHECK(out.warnings.size() == 1);
  // A file that names no model is not started, and by which release it is read.
  const std::string launcher = file(out, "launch.sh");
  CHECK(has(launcher, "if grep -q FILL_IN \"$here/plan_config.py\"; then\n"));
  CHECK(has(launcher, "--nproc-per-node 4 --nnodes 1 --node-rank \"${NODE_RANK:-0}\" \\\n  --master-addr "));
  CHECK(has(launcher, "-m torchtitan.train --module plan_config --config plan"));
  CHECK(file(out, "README.md").starts_with("# language for TorchTitan 0.3.0 (git checkout v0.3.0)"));
  CHECK(has(file(out, "README.md"), "https://github.com/pytorch/torchtitan/issues/2972"));
  CHECK(has(file(out, "README.md"), "profiles with --shard-degree"));
}

TEST_CASE("TorchTitan: stages in turns, in a V, and without a pipeline") {
  const auto config = [](const Plan& plan) {
    Plan adam = plan;
    adam.training.optimizer = OptimizerName::adam;
    return file(export_torchtitan(adam, Losses::refuse), "plan_config.py");
  };
  CHECK(has(config(plan_of(4, {1, 2, 3}, {}, "interleaved")), "\"Interleaved1F1B\""));
  CHECK(has(config(plan_of(4, {1, 2, 3}, {}, "zb-v")), "\"ZBVZeroBubble\""));
  Plan half = plan_of(4, {1, 2, 3});
  half.training.dtype = DType::bfloat16;  // all of it
  CHECK(has(config(half), "dtype=\"bfloat16\",\n            mixed_precision_param=\"bfloat16\",\n"));
  half.training.precision = Precision::mixed;  // half weights for the products, float32 ones for the updates
  CHECK(has(config(half), "dtype=\"float32\",\n            mixed_precision_param=\"bfloat16\",\n"));
  half.training.dtype = DType::float32;  // a float32 profile under autocast
  half.training.precision = Precision::autocast;
  CHECK(has(config(half), "dtype=\"float32\",\n            mixed_precision_param=\"bfloat16\",\n"));
  const std::string alone = config(plan_of(4, {}, {2}));
  CHECK(has(alone, "pipeline_parallel_degree=1,\n"));
  CHECK_FALSE(has(alone, "pipeline_parallel_schedule"));
  CHECK(has(alone, "local_batch_size=2,\n"));  // eight samples in four micro-batches
}

TEST_CASE("TorchTitan: with one replica nothing casts to a half type, which its README says") {
  const auto says = [](Plan plan, Precision precision) {
    plan.training.optimizer = OptimizerName::adamw;
    plan.training.dtype = DType::bfloat16;
    plan.training.precision = precision;
    return has(file(export_torchtitan(plan, Losses::refuse), "README.md"), "with one replica its FSDP");
  };
  CHECK(says(plan_of(4, {1, 2, 3}), Precision::mixed));
  CHECK_FALSE(says(plan_of(4, {1, 2, 3}), Precision::plain));
  CHECK_FALSE(says(plan_of(3, {1}, {2, 2}), Precision::mixed));
  CHECK_FALSE(says(plan_of(4, {}, {1}), Precision::mixed));  // a single device
}

TEST_CASE("TorchTitan: what it cannot do is named") {
  Plan plan = plan_of(3, {1}, {2, 2});  // plain SGD
  CHECK(has(refusal([&] { export_torchtitan(plan, Losses::refuse); }),
            "its optimizers are Adam and AdamW, not sgd"));
  plan.training.optimizer = OptimizerName::adamw;
  std::swap(plan.workers[1].device, plan.workers[2].device);
  CHECK(has(refusal([&] { export_torchtitan(plan, Losses::refuse); }), "plan with --placement packed"));
}

TEST_CASE("NeMo AutoModel: degrees, modules by the layers' names, the order of operations") {
  Plan plan = plan_of(3, {1}, {2, 2});
  plan.tensor_degree = 2;
  plan.training.optimizer = OptimizerName::adamw;
  const TrainerExport out = export_automodel(plan, Losses::refuse);
  const std::string text = file(out, "config.yaml");
  CHECK(has(text, "step_scheduler:\n  global_batch_size: 8\n  local_batch_size: 4\n"));
  CHECK(has(text,
            "distributed:\n"
            "  strategy: fsdp2\n"
            "  dp_size: 2\n"
            "  tp_size: 2\n"
            "  pp_size: 2\n"
            "  cp_size: 1\n"
            "  sequence_parallel: true\n"
            "  activation_checkpointing: false\n"
            "  pipeline:\n"
            "    pp_schedule: 1f1b"));
  CHECK(has(text,
            "    module_fqns_per_model_part:\n"
            "      - [\"embed\",\"h.0\"]\n"
            "      - [\"h.1\",\"h.2\",\"norm\",\"head\"]\n"));
  CHECK(has(text, "  seq_len: 8\n"));
  CHECK(file(out, "schedule.csv") == "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST_CASE("Megatron Bridge, verl and NeMo RL: overrides in the words of their own examples") {
  // Two stages on each of two workers, two replicas of tensor groups of two, first block of each stage again.
  Plan plan = plan_of(4, {1, 2, 3}, {}, "interleaved");
  plan.tensor_degree = 2;
  plan.training.optimizer = OptimizerName::adamw;
  plan.training.dtype = DType::bfloat16;
  plan.training.precision = Precision::mixed;
  plan.training.shard = Shard::optimizer;
  plan.predicted.all_reduce_overlap = 1;
  plan.context["checkpoint"] = "blocks";
  // The guide "Megatron-LM to Megatron Bridge", both of its tables.
  CHECK(file(export_megatron_bridge(plan, Losses::refuse), "overrides.txt") ==
        "model.tensor_model_parallel_size=2\n"
        "model.pipeline_model_parallel_size=2\n"
        "model.virtual_pipeline_model_parallel_size=2\n"
        "model.pipeline_model_parallel_layout=Et|t|t|tL\n"
        "model.sequence_parallel=true\n"
        "model.recompute_granularity=full\n"
        "model.recompute_method=uniform\n"
        "model.recompute_num_layers=1\n"
        "train.micro_batch_size=2\n"
        "train.global_batch_size=8\n"
        "ddp.use_distributed_optimizer=true\n"
        "optimizer.use_distributed_optimizer=true\n"
        "ddp.overlap_grad_reduce=true\n"
        "ddp.overlap_param_gather=true\n"
        "model.seq_length=8\n"
        "dataset.seq_length=8\n"
        "mixed_precision=bf16_mixed\n");
  // examples/grpo_trainer/run_qwen3moe-30b_megatron_lora.sh, and others for the layout.
  const std::string actor = "actor_rollout_ref.actor.",
                    core = "+" + actor + "megatron.override_transformer_config.";
  CHECK(file(export_verl(plan, Losses::refuse), "overrides.txt") ==
        actor + "megatron.tensor_model_parallel_size=2\n" + actor +
            "megatron.pipeline_model_parallel_size=2\n" + actor +
            "megatron.virtual_pipeline_model_parallel_size=2\n" + core +
            "pipeline_model_parallel_layout=Et|t|t|tL\n" + actor + "megatron.sequence_parallel=True\n" + core +
            "recompute_granularity=full\n" + core + "recompute_method=uniform\n" + core +
            "recompute_num_layers=1\n" + actor + "ppo_micro_batch_size_per_gpu=2\n" + actor +
            "ppo_mini_batch_size=8\n" + actor + "megatron.use_distributed_optimizer=True\n+" + actor +
            "megatron.override_ddp_config.overlap_grad_reduce=True\n+" + actor +
            "megatron.override_ddp_config.overlap_param_gather=True\n");
  // examples/configs/grpo_math_1B_megatron.yaml; model_overrides are keys of Megatron Bridge's model.
  const std::string policy = "policy.megatron_cfg.", sums = policy + "distributed_data_parallel_config.";
  CHECK(file(export_nemo_rl(plan, Losses::refuse), "overrides.txt") ==
        policy + "num_layers_in_first_pipeline_stage=null\n" + policy +
            "num_layers_in_last_pipeline_stage=null\n" + policy + "activation_checkpointing=true\n" + policy +
            "tensor_model_parallel_size=2\n" + policy + "pipeline_model_parallel_size=2\n++" + policy +
            "model_overrides.virtual_pipeline_model_parallel_size=2\n++" + policy +
            "model_overrides.pipeline_model_parallel_layout=Et|t|t|tL\n" + policy +
            "sequence_parallel=true\n++" + policy + "recompute_granularity=full\n++" + policy +
            "recompute_method=uniform\n++" + policy + "recompute_num_layers=1\n" +
            "policy.train_micro_batch_size=2\npolicy.train_global_batch_size=8\n" + policy +
            "optimizer.use_distributed_optimizer=true\n" + sums + "overlap_grad_reduce=true\n" + sums +
            "overlap_param_gather=true\npolicy.max_total_sequence_length=8\n"
            "cluster.num_nodes=1\ncluster.gpus_per_node=4\npolicy.precision=bfloat16\n");
  plan.training.products = NarrowType::mxfloat8;
  CHECK(has(file(export_megatron_bridge(plan, Losses::refuse), "overrides.txt"),
            "mixed_precision=bf16_with_mxfp8_mixed\n"));
  CHECK(has(refusal([&] { export_verl(plan, Losses::refuse); }),
            "verl cannot say all of this plan: no key of its own says that products are of mxfloat8"));
  Plan first = plan_of(4, {2}, {2, 2});  // the first of two blocks of each stage
  first.training.dtype = DType::bfloat16;
  first.training.precision = Precision::mixed;
  run_again(first, 0, kAll);
  run_again(first, 2, kAll);
  CHECK(has(refusal([&] { export_nemo_rl(first, Losses::refuse); }),
            "NeMo RL cannot say all of this plan: it recomputes all blocks or none; plan with --recompute "
            "always"));
}

TEST_CASE("DeepSpeed: its configuration, and cuts in its list of layers") {
  Plan plan = plan_of(4, {1, 3}, {2, 2, 2});
  plan.training.optimizer = OptimizerName::adamw;
  plan.training.shard = Shard::optimizer;
  plan.context["checkpoint"] = "blocks";
  const TrainerExport out = export_deepspeed(plan, Losses::refuse);
  CHECK(parse_json(file(out, "ds_config.json")) ==
        parse_json(R"({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2,
                       "gradient_accumulation_steps": 2, "zero_optimization": {"stage": 1},
                       "bf16": {"enabled": false}, "optimizer": {"type": "AdamW", "params": {"lr": 3e-4}}})"));
  // Layer 0 stands in front of the blocks: stages begin at blocks 1 and 3. diffusion-pipe, main_example.toml.
  CHECK(file(out, "partition.toml") ==
        "pipeline_stages = 3\nmicro_batch_size_per_gpu = 2\ngradient_accumulation_steps = 2\n"
        "activation_checkpointing = true\npartition_method = 'manual'\npartition_split = [2, 4]\n");
  plan.predicted.all_reduce_overlap = 0.5;
  CHECK(has(refusal([&] { export_deepspeed(plan, Losses::refuse); }), "plan with --all-reduce-overlap 0"));
  plan.tensor_degree = 2;
  CHECK(has(refusal([&] { export_deepspeed(plan, Losses::leave_out); }),
            "its pipelines split no layer over GPUs"));
  CHECK(has(refusal([&] {
              export_deepspeed(plan_of(4, {1, 2, 3}, {}, "interleaved"), Losses::leave_out);
            }),
            "it has one stage on each worker"));
}

TEST_CASE("each trainer: what a plan counts on is in its files, or named as lost") {
  struct Trainer {
    std::string name;
    TrainerExport (*write)(const Plan&, Losses);
  };
  const std::vector<Trainer> trainers{{"torch", export_torch_pipelining},
                                      {"megatron", export_megatron},
                                      {"torchtitan", export_torchtitan},
                                      {"automodel", export_automodel}};
  // What changes in the plan, and where it is found: in files, or `lost`, which without it is empty.
  struct Assumption {
    std::string what;
    std::function<void(Plan&)> change;
    std::map<std::string, std::string> written, lost;
  };
  const std::string inputs = "its data are tokens: nothing gives pixels to the model";
  const std::string tower =
      "2 products beside those of its blocks and its head, vision.patch to vision.out: the plan counts them, "
      "and it "
      "has none";
  const std::string frozen =
      "frozen weights, such as those of embed: it trains all, which takes longer than planned";
  const std::string float64 = "it trains in float32 or bfloat16, not in float64";
  const std::string format = "tensors are contiguous between its stages, not channels_last";
  const std::string float16 = "it casts products to bfloat16, not to float16";
  const auto set = [](auto member, auto value) { return [=](Plan& plan) { plan.training.*member = value; }; };
  const std::vector<Assumption> assumptions{
      {"blocks that an estimate recomputes",
       [](Plan& plan) { plan.context["checkpoint"] = "blocks"; },
       {{"megatron", "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n"},
        {"torchtitan", "activation_checkpoint=FullAC.Config(),\n"},
        {"automodel", "activation_checkpointing: true\n"}},
       {{"torch",
         "no block runs again, as the profile has it: stages keep their activations and need more memory than "
         "planned; estimate without --checkpoint"}}},
      {"hidden sums of gradients",
       [](Plan& plan) { plan.predicted.all_reduce_overlap = 0.5; },
       {{"megatron", "--overlap-grad-reduce\n"},
        {"torchtitan", "data_parallel_shard_degree=2,\n"},  // FSDP hides them
        {"automodel", "strategy: fsdp2\n"}},
       {{"torch",
         "gradients are added up after the last backward and not behind it; plan with --all-reduce-overlap "
         "0"}}},
      {"a vision tower",
       [](Plan& plan) {
         std::vector<Layer>& layers = plan.model.layers;
         plan.model.inputs.push_back({"pixels", {{8, 4}, DType::float32}});
         const Attributes width{{"out_features", std::int64_t{4}}, {"bias", true}};
         const Layer patch = layer("vision.patch", "linear", "pixels", width);
         const Layer out = layer("vision.out", "linear", "vision.patch", width);
         Layer sum = layer("sum", "add", "embed");
         sum.inputs.push_back("vision.out");
         layers.insert(layers.begin() + 1, {patch, out, sum});
         layers[4].inputs = {"sum"};
         std::vector<std::string>& first = plan.stages.front().layers;
         first.insert(first.begin() + 1, {"vision.patch", "vision.out", "sum"});
         plan.model = resolve(plan.model).graph;
       },
       {{"torch", "\"vision\""}},
       {{"megatron", tower}, {"torchtitan", tower}, {"automodel", inputs}}},
      {"frozen weights",
       [](Plan& plan) { plan.model.layers.front().frozen.all = true; },
       {{"torch", "schedule._load_csv"}},  // the module says it
       {{"megatron", frozen}, {"torchtitan", frozen}, {"automodel", frozen}}},
      {"the type of the weights",
       set(&Training::dtype, DType::float64),
       {{"torch", "\"dtype\": \"float64\""}},
       {{"megatron", float64}, {"torchtitan", float64}, {"automodel", float64}}},
      {"how tensors lie",
       set(&Training::memory_format, MemoryFormat::channels_last),
       {},
       {{"torch", format}, {"megatron", format}, {"torchtitan", format}, {"automodel", format}}},
      {"the type of products",
       set(&Training::autocast, std::optional(Autocast::float16)),
       {},
       {{"torch", float16}, {"megatron", float16}, {"torchtitan", float16}, {"automodel", float16}}},
      {"another optimizer",
       set(&Training::optimizer, OptimizerName::rmsprop),
       {{"torch", "\"optimizer\": \"RMSprop\""}, {"automodel", "_target_: torch.optim.RMSprop\n"}},
       {{"megatron", "its optimizers are Adam and SGD, not rmsprop; Adam stands there"},
        {"torchtitan", "its optimizers are Adam and AdamW, not rmsprop; AdamW stands there"}}},
      {"a loss of its own",
       [](Plan& plan) {
         plan.model.loss->attributes = {{"ignore_index", std::int64_t{3}}};
       },
       {{"torch", "\"ignore_index\": 3"}, {"megatron", ""}, {"torchtitan", ""}, {"automodel", ""}},
       {}},
      {"positions that members hold as a whole",
       [](Plan& plan) {
         plan.tensor_degree = 2;
         plan.context["sequence_parallel"] = "false";
       },
       {{"megatron", "--tensor-model-parallel-size 2\n--seq-length"},  // the next file: no --sequence-parallel
        {"torchtitan", "tensor_parallel_degree=2,\n"},
        {"automodel", "sequence_parallel: false\n"}},
       {{"torch", "launch.py splits no layer over 2 GPUs"}}},
      {"positions that members of a context group divide",
       [](Plan& plan) { plan.context_degree = 2; },
       {{"megatron", "--context-parallel-size 2\n"},
        {"torchtitan", "context_parallel_degree=2,\n"},
        {"automodel", "cp_size: 2\n"}},
       {{"torch", "launch.py splits no sample over 2 GPUs"}}},
      {"products in eight bits",
       [](Plan& plan) {
         plan.training.dtype = DType::bfloat16;
         plan.training.precision = Precision::mixed;
         plan.training.products = NarrowType::mxfloat8;
       },
       {{"megatron", "--bf16\n--fp8-format e4m3\n--fp8-recipe mxfp8\n"}},
       {{"torch", "its products are of bfloat16, not of mxfloat8; estimate with --dtype bfloat16"},
        {"torchtitan", "its products are of bfloat16, not of mxfloat8; estimate with --dtype bfloat16"},
        {"automodel", "its products are of bfloat16, not of mxfloat8; estimate with --dtype bfloat16"}}}};
  for (const Trainer& trainer : trainers) {
    Plan plain = plan_of(3, {1}, {2, 2});
    plain.training.optimizer = OptimizerName::adamw;
    REQUIRE(trainer.write(plain, Losses::refuse).lost.empty());
    for (const Assumption& assumption : assumptions) {
      CAPTURE(trainer.name);
      CAPTURE(assumption.what);
      Plan plan = plain;
      assumption.change(plan);
      const TrainerExport out = trainer.write(plan, Losses::leave_out);
      std::string files;
      for (const ExportedFile& f : out.files)
        if (f.name != "README.md") files += f.content;
      const auto written = assumption.written.find(trainer.name), lost = assumption.lost.find(trainer.name);
      REQUIRE((written != assumption.written.end()) != (lost != assumption.lost.end()));
      if (written != assumption.written.end()) {
        CHECK(has(files, written->second));
        CHECK(out.lost.empty());
      } else {
        CHECK(std::ranges::find(out.lost, lost->second) != out.lost.end());
      }
    }
  }
}

}  // namespace pp::plan::trainer_folders_test

TEST_SUITE_END();

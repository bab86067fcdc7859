#include <ATen/ops/ones.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/limits.h"
#include "libprofile/device/build.h"
#include "libprofile/device/cuda_devices.h"
#include "libprofile/model/families/hugging_face.h"
#include "librun/data/readers.h"
#include "librun/run.h"
#include "librun/setup/checks.h"
#include "tests/librun/folder.h"
#include "tests/librun/imported_models.h"
#include "tests/librun/models.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace check_test {

using namespace pp;

namespace {

run::RunOptions synthetic() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 64;
  options.epochs = 1;
  return options;
}

PlanSpec small() { return {.model = test::dropout_mlp(), .cuts = {3}}; }

std::pair<std::string, ErrorKind> refusal(const plan::Plan& plan, const run::RunOptions& options) {
  try {
    run::check(plan, options);
  } catch (const Error& error) {
    return {error.what(), error.kind()};
  }
  return {"accepted", ErrorKind::internal};
}

std::string refused_options(const std::function<void(run::RunOptions&)>& change) {
  run::RunOptions options = synthetic();
  change(options);
  const auto [message, kind] = refusal(make_plan(small()), options);
  CHECK((message == "accepted" || kind == ErrorKind::usage || kind == ErrorKind::data));
  return message;
}

std::string refused_plan(const std::function<void(plan::Plan&)>& change, ErrorKind expected) {
  plan::Plan plan = make_plan(small());
  change(plan);
  const auto [message, kind] = refusal(plan, synthetic());
  CHECK(kind == expected);
  return message;
}

}  // namespace

TEST_SUITE("librun/check") {
  TEST_CASE("a plan whose layers are split over a tensor group is refused with the way out") {
    CHECK(refused_plan([](plan::Plan& plan) { plan.tensor_degree = 2; }, ErrorKind::usage) ==
          "the plan splits every layer over 2 GPUs, which pp-run does not; plan from a profile of tensor "
          "degree 1, "
          "or take the plan elsewhere with pp-plan export" +
              std::string(kLimits));
    CHECK(refused_plan([](plan::Plan& plan) { plan.context_degree = 4; }, ErrorKind::usage) ==
          "the plan splits every sample over 4 GPUs, which pp-run does not; plan from a profile without "
          "--context-parallel, or take the plan elsewhere with pp-plan export" +
              std::string(kLimits));
    CHECK(
        refused_plan([](plan::Plan& plan) { plan.training.products = NarrowType::float8; }, ErrorKind::usage) ==
        "the plan has products in float8, which pp-run does not; plan from a profile of another --dtype, or "
        "take the plan elsewhere with pp-plan export" +
            std::string(kLimits));
  }

  TEST_CASE("a layer is named whose readers' gradients the stages add in other groups than one device") {
    // One device adds those of a: ((v + k) + q). Where they are read by no more than two, any order is the
    // same.
    const ModelGraph graph = parse_model(R"({"format": "pp.model", "version": 1, "name": "fork",
        "inputs": [{"name": "x", "shape": [4]}], "targets": [{"name": "y", "shape": [4]}], "layers": [
          {"name": "a", "op": "linear", "inputs": ["x"], "attributes": {"out_features": 4}},
          {"name": "q", "op": "linear", "inputs": ["a"], "attributes": {"out_features": 4}},
          {"name": "k", "op": "linear", "inputs": ["a"], "attributes": {"out_features": 4}},
          {"name": "v", "op": "linear", "inputs": ["a"], "attributes": {"out_features": 4}},
          {"name": "qk", "op": "add", "inputs": ["q", "k"]},
          {"name": "qkv", "op": "add", "inputs": ["qk", "v"]}], "outputs": ["qkv"],
        "loss": {"op": "mse", "inputs": ["qkv", "y"]}})");
    const auto named = [&](std::vector<std::vector<std::string>> stages) {
      plan::Plan plan;
      for (std::vector<std::string>& layers : stages) plan.stages.emplace_back().layers = std::move(layers);
      return run::regrouped_layer(plan, resolve(graph));
    };
    CHECK(named({{"a", "q", "k", "v", "qk", "qkv"}}) == "");
    CHECK(named({{"a", "q"}, {"k", "v", "qk", "qkv"}}) == "");     // (v + k) + q
    CHECK(named({{"a"}, {"q"}, {"k", "v", "qk", "qkv"}}) == "");   // the same
    CHECK(named({{"a", "q", "k"}, {"v", "qk", "qkv"}}) == "");     // (v + k) + q
    CHECK(named({{"a"}, {"q", "k"}, {"v", "qk", "qkv"}}) == "a");  // v + (k + q)
    CHECK(named({{"a", "k", "v"}, {"q", "qk", "qkv"}}) == "a");    // (q + v) + k
  }

  TEST_CASE("a model that nobody compared with its module is not trained, and not inferred with") {
    const auto without_weights = [](plan::Plan& plan) { plan.model.verified = false; };
    CHECK(refused_plan(without_weights, ErrorKind::data) ==
          "model \"" + small().model.name +
              "\" was imported by --plan-only, without weights, and never compared with its module; import it "
              "with "
              "scripts/import-torch without --plan-only, which compares them, and give that model.json by "
              "--model");
  }

  TEST_CASE("multi-token prediction is not trained, and the layer that begins it is named") {
    const ModelGraph model = pp::model::build_hugging_face(
        parse_json(
            R"({"model_type": "deepseek_v3", "vocab_size": 32, "hidden_size": 16, "intermediate_size": 24,
          "moe_intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
          "n_shared_experts": 1, "n_routed_experts": 8, "kv_lora_rank": 4, "q_lora_rank": 6, "qk_rope_head_dim": 4,
          "v_head_dim": 8, "qk_nope_head_dim": 8, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 2,
          "num_nextn_predict_layers": 1, "max_position_embeddings": 16})"),
        "mtp=1");
    const auto [message, kind] = refusal(make_plan({.model = model, .cuts = {}}), synthetic());
    CHECK(message ==
          "layer \"model.layers.1.embed_tokens\" begins a block of multi-token prediction, whose loss is not "
          "weighted here: it is estimated, planned and exported to Megatron-LM; leave mtp=1 out to train the "
          "model without it");
    CHECK(kind == ErrorKind::data);
  }

  TEST_CASE(
      "a model that has weights of its own, or frozen ones, is not trained from drawn ones unless that is "
      "meant") {
    const std::string remedy =
        "; give them with --initial-weights, or say --random-weights if drawn ones are meant";
    const auto imported = [](plan::Plan& plan) { plan.model.weights = "w.safetensors"; };
    CHECK(refused_plan(imported, ErrorKind::usage) == "no weights: model \"" + small().model.name +
                                                          "\" was imported with its own, in w.safetensors" +
                                                          remedy);
    PlanSpec spec = small();
    std::ranges::find(spec.model.layers, "fc1", &Layer::name)->frozen.all = true;
    const auto [message, kind] = refusal(make_plan(spec), synthetic());
    CHECK(message ==
          "no weights: frozen parameters would stay as they are drawn (fc1.bias, fc1.weight)" + remedy);
    CHECK(kind == ErrorKind::usage);
    run::RunOptions meant = synthetic();
    meant.random_weights = true;
    CHECK(refusal(make_plan(spec), meant).first == "accepted");
    spec.model.weights = "w.safetensors";
    CHECK(refusal(make_plan(spec), meant).first == "accepted");
    // Where they came from is no part of what the plan was made for.
    CHECK(model_hash(spec.model) == model_hash([&] {
            ModelGraph same = spec.model;
            same.weights.clear();
            return same;
          }()));
  }

  TEST_CASE("bfloat16 weights without a float32 master are a warning, with the way out") {
    const auto warnings = [](DType dtype, plan::Precision precision) {
      PlanSpec spec = small();
      spec.dtype = dtype;
      spec.precision = precision;
      return run::check(make_plan(spec), synthetic());
    };
    using plan::Precision;
    const std::vector<std::string> pure = warnings(DType::bfloat16, Precision::plain);
    REQUIRE(pure.size() == 1);
    CHECK(pure[0] ==
          "the weights are bfloat16 without a float32 master: an update below 1/512 of its weight is lost in "
          "rounding; plan with --precision mixed, or profile in float32 with --autocast bfloat16");
    CHECK(warnings(DType::bfloat16, Precision::mixed).empty());
    CHECK(warnings(DType::float32, Precision::plain).empty());
    // As PyTorch rounds: 1 + 1/513 is 1 again, 1 + 1/255 is not.
    CHECK(at::ones({}, at::kBFloat16).add(1.0 / 513).item<double>() == 1);
    CHECK(at::ones({}, at::kBFloat16).add(1.0 / 255).item<double>() > 1);
  }

  TEST_CASE("a plan with its options is accepted") {
    CHECK(refused_options([](run::RunOptions&) {}) == "accepted");
    CHECK(refused_options([](run::RunOptions& o) {
            o.epochs.reset();
            o.steps = 5;
          }) == "accepted");
  }

  TEST_CASE("options out of range are refused") {
    CHECK(refused_options([](auto& o) { o.steps = 5; }) ==
          "give the length of the run as one of --epochs and --steps");
    CHECK(refused_options([](auto& o) { o.epochs.reset(); }) ==
          "give the length of the run as one of --epochs and --steps");
    CHECK(refused_options([](auto& o) { o.epochs = 0; }) == "epochs = 0: must be at least 1");
    CHECK(refused_options([](auto& o) { o.learning_rate = -1; }) == "learning_rate = -1: must be 0 or more");
    CHECK(refused_options([](auto& o) { o.learning_rate = 0; }) == "accepted");
    CHECK(refused_options([](auto& o) { o.clip_norm = 0; }) == "clip_norm = 0: must be above 0");
    CHECK(refused_options([](auto& o) { o.lr_schedule = "step"; }) ==
          "lr_step_size = 0: must be at least 1 with the schedule `step`");
    CHECK(refused_options([](auto& o) { o.lr_schedule = "cosin"; }) ==
          "--lr-schedule: unknown name \"cosin\"; did you mean cosine? Use one of constant, step, cosine, or a "
          "file of steps and their rates");
    CHECK(refused_options([](auto& o) {
            o.epochs.reset();
            o.steps = 8;
            o.warmup_steps = 8;
          }) == "warmup_steps = 8: must be below the 8 steps of the training");
    CHECK(refused_options([](auto& o) { o.optimizer["momentum"] = 1; }) == "momentum = 1: must be in [0, 1)");
    CHECK(refused_options([](auto& o) { o.optimizer["epsilon"] = 0; }) == "epsilon = 0: must be above 0");
    CHECK(refused_options([](auto& o) { o.optimizer["lr_decay"] = -1; }) == "lr_decay = -1: must be 0 or more");
    CHECK(refused_options([](auto& o) { o.accumulate = 0; }) == "accumulate = 0: must be at least 1");
    CHECK(refused_options([](auto& o) { o.stall_timeout = Seconds(0); }) ==
          "--stall-timeout 0 s: must be above 0");
    CHECK(refused_options([](auto& o) { o.data = ""; }) == "--data: give a folder or file, or synthetic");
    CHECK(refused_options([](auto& o) { o.synthetic_samples = 7; }) ==
          "synthetic: mini_batch = 8 exceeds the data set of 7 samples; plan with a smaller mini-batch or give "
          "more data");
    CHECK(refused_options([](auto& o) { o.synthetic_samples = 19; }) ==
          "synthetic: the last mini-batch has 3 samples, fewer than micro_batches = 4; leave it out with "
          "--drop-last");
    CHECK(refused_options([](auto& o) {
            o.synthetic_samples = 19;
            o.drop_last = true;
          }) == "accepted");
  }

  TEST_CASE("settings that the plan's optimizer does not have are refused, not ignored") {
    const auto refused = [](OptimizerName optimizer, auto change) {
      PlanSpec spec = small();
      spec.optimizer = optimizer;
      run::RunOptions options = synthetic();
      change(options);
      return refusal(make_plan(spec), options).first;
    };
    using enum OptimizerName;
    CHECK(refused(sgd, [](auto& o) { o.optimizer["beta1"] = 0.8; }) ==
          "--beta1: the plan's optimizer sgd has --momentum, --nesterov; leave it out, or plan with "
          "--optimizer adam or adamw");
    CHECK(refused(adamw, [](auto& o) { o.optimizer["momentum"] = 0.9; }) ==
          "--momentum: the plan's optimizer adamw has --beta1, --beta2, --epsilon; leave it out, or plan with "
          "--optimizer sgd or rmsprop");
    CHECK(refused(rmsprop, [](auto& o) { o.optimizer["lr_decay"] = 0.1; }) ==
          "--lr-decay: the plan's optimizer rmsprop has --momentum, --alpha, --epsilon; leave it out, or plan "
          "with --optimizer adagrad");
    CHECK(refused(adam, [](auto& o) {
            o.optimizer["nesterov"] = 1;
          }).starts_with("--nesterov: the plan's optimizer adam "));
    CHECK(refused(sgd, [](auto& o) {
            o.optimizer["nesterov"] = 1;
            o.optimizer["momentum"] = 0;
          }) == "--nesterov: needs a momentum above 0, found 0; leave one of the two out");
    CHECK(refused(adagrad, [](auto& o) { o.optimizer["epsilon"] = 1e-6; }) == "accepted");
  }

  TEST_CASE("the optimizer's state is divided where replicas update together, in one order") {
    plan::Plan plan = make_plan({.model = test::dropout_mlp(),
                                 .cuts = {3},
                                 .replicas = {2, 2},
                                 .schedule = "pipedream",
                                 .micro_batches = 1,
                                 .shard = plan::Shard::optimizer});
    CHECK(
        refusal(plan, synthetic()).first ==
        "the plan lets replicas share the optimizer's state, which schedule pipedream cannot: its replicas do "
        "not update together; plan with --shard none, or with 1f1b");
    plan = make_plan(
        {.model = test::dropout_mlp(), .cuts = {3}, .schedule = "chimera", .shard = plan::Shard::optimizer});
    CHECK(refusal(plan, synthetic()).first == "accepted");
    run::RunOptions fast = synthetic();
    fast.all_reduce = run::AllReduce::fast;
    CHECK(refusal(plan, fast).first ==
          "--all-reduce fast: in this plan replicas share the optimizer's state, so each adds its own slice of "
          "the gradients, in their order; leave it out, or plan with --shard none");
    plan::Program& program = plan.workers[1].program.program;
    const auto first = std::ranges::find(program, plan::OpKind::update, &plan::Op::kind);
    std::swap(*first, *std::next(first));
    CHECK(
        refusal(plan, synthetic()).first ==
        "worker 1 updates stage 0 after stage 1: replicas that share the optimizer's state would wait for each "
        "other; list updates by ascending stage, or plan with --shard none");
  }

  TEST_CASE("losses are scaled by a number above 0, and dynamic scales skip steps") {
    CHECK(refused_options([](auto& o) { o.loss_scale = 0; }) == "loss_scale = 0: must be above 0");
    CHECK(refused_options([](auto& o) {
            o.autocast = Autocast::float16;
            o.on_nan = run::OnNan::stop;
          }) ==
          "--on-nan stop: under --autocast float16 the loss scale is found by skipping steps that are not "
          "finite; leave --on-nan out, or give a --loss-scale");
  }

  TEST_CASE("autocast is from float32") {
    PlanSpec spec = small();
    spec.dtype = DType::float64;
    run::RunOptions options = synthetic();
    options.autocast = Autocast::bfloat16;
    CHECK(refusal(make_plan(spec), options).first ==
          "--autocast: the plan trains in float64; plan with float32, or leave it out");
  }

  TEST_CASE("weight prediction needs an optimizer with momentum") {
    PlanSpec spec = small();
    spec.schedule = "spectrain";
    spec.policy = plan::WeightPolicy::predict;
    spec.micro_batches = 1;
    run::RunOptions options = synthetic();
    CHECK(refusal(make_plan(spec), options).first == "accepted");
    options.optimizer["momentum"] = 0;
    CHECK(refusal(make_plan(spec), options).first ==
          "weight policy predict follows the optimizer's momentum, and sgd has none at momentum 0; give "
          "--momentum");
    spec.optimizer = OptimizerName::adagrad;
    CHECK(refusal(make_plan(spec), synthetic()).first ==
          "weight policy predict follows the optimizer's momentum, and adagrad has none; plan with --optimizer "
          "sgd or adam");
  }

  TEST_CASE("devices are asked for before LibTorch is, which takes its CUDA half only before it computes") {
    plan::Plan plan = make_plan({.model = test::imported_residual(), .cuts = {3}});
    for (Layer& layer : plan.model.layers) {
      if (layer.call) layer.call->target = "aten::nowhere";
    }
    CHECK(refusal(plan, synthetic()).second == ErrorKind::data);
    plan.devices[1].kind = DeviceKind::cuda;
    plan.devices[1].index = 99;
    const auto [message, kind] = refusal(plan, synthetic());
    CHECK(kind == ErrorKind::device);
    CHECK(message.starts_with("worker 1: device cuda:99: "));
  }

  TEST_CASE("devices that this machine does not have are refused") {
    const int cuda = profile::cuda_device_count();
    const std::string have =
        cuda == 0 ? profile::why_no_cuda() + "; plan for CPU devices"
                  : "this machine has cuda:0 to cuda:" + std::to_string(cuda - 1) + "; plan for these";
    CHECK(refused_plan(
              [](plan::Plan& p) {
                p.devices[1].kind = DeviceKind::cuda;
                p.devices[1].index = 99;
              },
              ErrorKind::device) == "worker 1: device cuda:99: " + have);
    const std::string message =
        refused_plan([](plan::Plan& p) { p.devices[0].cores = {4095}; }, ErrorKind::device);
    CHECK(message.starts_with("device cpu:0: core 4095 is not available, this process may use "));
  }

  TEST_CASE("models that cannot be trained are refused") {
    CHECK(refused_plan([](plan::Plan& p) { p.model.loss.reset(); }, ErrorKind::data) ==
          "model \"dropout_mlp\" has no loss; add one to train it, or run it with pp-run infer");
  }

  TEST_CASE("a plan that contradicts itself is refused as pp-plan refuses it") {
    CHECK(refused_plan([](plan::Plan& p) { p.stages[1].layers.pop_back(); }, ErrorKind::data)
              .starts_with("/stages: layer \"head\""));
  }

  TEST_CASE("a stream whose mini-batches do not fill the rounds of its replicas is refused") {
    const plan::Plan plan = make_plan({.model = test::mlp(2),
                                       .cuts = {2},
                                       .replicas = {2, 1},
                                       .schedule = "pipedream",
                                       .mini_batch = 8,
                                       .micro_batches = 1});
    run::RunOptions options = synthetic();
    options.synthetic_samples = 56;  // 7 mini-batches
    CHECK(refusal(plan, options).first ==
          "schedule pipedream: 7 mini-batches are not a multiple of the 2 replicas of stage 0; use 6 or 8, or "
          "--drop-last");
    options.drop_last = true;
    CHECK(refusal(plan, options).first == "accepted");
    options.epochs.reset();
    options.steps = 3;
    CHECK(refusal(plan, options).first ==
          "steps = 3 is not a multiple of the 2 replicas of stage 0; use 2 or 4");
  }

  TEST_CASE("batch norm on one value per channel is found before the run") {
    // Images of 1x1: a micro-batch of one sample has one value.
    PlanSpec spec{.model = test::residual_net(), .mini_batch = 4, .micro_batches = 4};
    spec.model.inputs[0].type.shape = {2, 1, 1};
    CHECK(refusal(make_plan(spec), synthetic()).first ==
          "layer \"bn0\": batch norm: a micro-batch of 1 samples has 1 value per channel; lower micro_batches "
          "or use --drop-last");
  }

  TEST_CASE("data files are checked against the model before the run") {
    const TestFolder folder;
    run::RunOptions options = synthetic();
    options.data = folder.path().string();
    const auto message = [&] {
      const std::string text = refusal(make_plan(small()), options).first;
      const auto at = text.find(options.data);
      return at == std::string::npos ? text : text.substr(at + options.data.size());
    };
    CHECK(message() ==
          ": no data: none of train-images.idx, data_batch_1.bin, train.safetensors, train-x.npy, train.csv is "
          "in it; tokens need --token-type; images, parquet, tar and .pt go through a DataLoader: "
          "scripts/export-data");
    folder.write("train-images.idx", run::idx_bytes(run::ElementType::uint8, {16, 2, 3}, std::string(96, 'x')));
    folder.write("train-labels.idx", run::idx_bytes(run::ElementType::uint8, {16}, std::string(16, '\1')));
    CHECK(message() ==
          "/train-images.idx: samples have the shape [2, 3], the model's input \"x\" is [5]; give data of that "
          "shape or plan a "
          "model for this data");
    folder.write("train-images.idx", run::idx_bytes(run::ElementType::uint8, {15, 5}, std::string(75, 'x')));
    CHECK(message().starts_with("/train-labels.idx: 16 samples, 15 in "));
    folder.write("train-images.idx", run::idx_bytes(run::ElementType::uint8, {16, 5}, std::string(80, 'x')));
    CHECK(message() == "accepted");
    options.test_share = 0.01;
    CHECK(message() == ": 16 samples leave nothing for the test set; change --test-share");
    options.test_share = 1;
    CHECK(message() == "test_share = 1: must be in [0, 1)");
    options.test_share = 0.5;  // 8 samples are one mini-batch
    CHECK(message() == "accepted");
    folder.write("test-labels.idx", run::idx_bytes(run::ElementType::uint8, {4}, std::string(4, '\1')));
    CHECK(message() == "/test-images.idx: no such file");
    options.data = "no/such/folder";
    CHECK(message() == ": no such file or folder; give data, or synthetic");
  }
}

}  // namespace check_test

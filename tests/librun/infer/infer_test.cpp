// Inference: the outputs of every plan of a model are those of one device.
#include "librun/infer.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>

#include <atomic>
#include <map>
#include <span>

#include "libprofile/core/error.h"
#include "libprofile/model/families/families.h"
#include "librun/checkpoint/weights.h"
#include "librun/data/synthetic.h"
#include "tests/librun/infer/files.h"
#include "tests/librun/models.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/small_families.h"
#include "tests/support/torch_test.h"

namespace infer_test {

using namespace pp;
using Files = test::InferFiles;
using test::NamedTensors;

namespace {

/// Parameters and running statistics after some training, so that none of them is what it is drawn as.
NamedTensors trained(const ModelGraph& model) {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 24;
  options.steps = 3;
  options.evaluate = false;
  return test::run_plan(make_plan({.model = model}), options).tensors;
}

/// A value for each element of `samples` samples of every input.
NamedTensors inputs_of(const ModelGraph& model, std::int64_t samples) {
  NamedTensors inputs;
  for (const DataTensor& input : model.inputs) {
    Shape shape = input.type.shape;
    shape.insert(shape.begin(), samples);
    const at::Tensor numbers = at::arange(element_count(shape), at::kLong).mul(37).remainder(19).reshape(shape);
    inputs.emplace_back(input.name,
                        is_floating(input.type.dtype) ? numbers.to(at::kFloat).sub(9).div(7) : numbers);
  }
  return inputs;
}

/// All kinds of schedules, with cuts for models of at least 9 layers.
std::vector<PlanSpec> plans_of(const ModelGraph& model) {
  std::vector<PlanSpec> specs{{},
                              {.cuts = {4}, .schedule = "gpipe"},
                              {.cuts = {2, 5}},
                              {.cuts = {3, 6}, .schedule = "zb-h1"},
                              {.cuts = {1, 3, 5, 7}},
                              {.cuts = {2, 5}, .replicas = {2, 1, 3}},
                              {.cuts = {2, 4, 6}, .schedule = "chimera"},
                              {.cuts = {2, 4, 6}, .schedule = "interleaved"}};
  const bool shares = std::ranges::any_of(model.layers, [](const Layer& l) { return !l.weights_of.empty(); });
  if (!shares) specs.push_back({.cuts = {2}, .replicas = {2, 1}, .schedule = "pipedream", .micro_batches = 1});
  for (PlanSpec& spec : specs) spec.model = model;
  return specs;
}

void check_all_plans(const ModelGraph& model) {
  const NamedTensors weights = trained(model), inputs = inputs_of(model, 22);
  const NamedTensors expected = test::ModelAlone(model, weights).outputs(inputs, 3);
  Files files(inputs, weights);
  files.options.micro_batch = 3;  // the last pass has one row
  for (const PlanSpec& spec : plans_of(model)) {
    const plan::Plan plan = make_plan(spec);
    const std::string where = spec.schedule + ", stages " + plan::stages_text(plan);
    CAPTURE(where);
    CHECK(test::first_difference(expected, files.infer(plan)) == "");
    CHECK(files.report.samples == 22);
    CHECK(files.report.passes == 8);
  }
}

/// The same of a deep network, whose numbers stay near 1: one small step on samples that are enough for batch
/// norm, and running statistics that are theirs.
NamedTensors hardly_trained(ModelGraph model) {
  for (Layer& layer : model.layers) {
    for (auto& [name, value] : layer.attributes) {
      if (layer.op.starts_with("batch_norm") && name == "momentum") value = 1.0;
    }
  }
  run::RunOptions options = pp::test::synthetic_options(1, 12);
  options.learning_rate = 1e-4;
  options.evaluate = false;
  return test::run_plan(make_plan({.model = model, .mini_batch = 12, .micro_batches = 1}), options).tensors;
}

/// One stage, two and four.
void check_families(std::span<const std::string_view> families) {
  for (const std::string_view family : families) {
    CAPTURE(family);
    const ModelGraph model = model::build_family(family);
    const run::MemoryDataset data =
        run::make_synthetic(resolve(model), 5, /*seed=*/3, run::Subset::test, DType::float32);
    NamedTensors inputs;
    for (std::size_t i = 0; i < model.inputs.size(); ++i)
      inputs.emplace_back(model.inputs[i].name, data.inputs[i].values);
    const NamedTensors weights = hardly_trained(model);
    const NamedTensors expected = test::ModelAlone(model, weights).outputs(inputs, 2);
    for (const auto& [name, tensor] : expected) CHECK(tensor.ne(tensor[0]).any().item<bool>());
    Files files(inputs, weights);
    files.options.micro_batch = 2;  // the last pass has one row
    const int layers = static_cast<int>(model.layers.size());
    for (const std::vector<int>& cuts :
         {std::vector<int>{}, {layers / 3}, {layers / 4, layers / 2, layers - 2}}) {
      CAPTURE(cuts.size());
      CHECK(test::first_difference(expected, files.infer(make_plan({.model = model, .cuts = cuts}))) == "");
      CHECK(files.report.passes == 3);
    }
  }
}

}  // namespace

TEST_SUITE("librun/infer") {
  TEST_CASE("row 25: the outputs of all families equal the single device's bit for bit, whole and cut") {
    check_families(small::kPlain);
    check_families(small::kImages);
    check_families(small::kBlocks);
    check_families(small::kEncoders);
    check_families(small::kDecoders);
    check_families(small::kTranslators);
  }

  // Linears, batch norm with long skips, shared weights, dropout, which is left out, and a transformer's
  // tokens.
  TEST_CASE("the outputs of every plan equal the single device's bit for bit") {
    for (const ModelGraph& model :
         {test::mlp(4), test::residual_net(), test::shared_mlp(), test::dropout_mlp(),
          model::build_family("transformer:layers=2,width=8,heads=2,vocabulary=19,sequence=6,tied=1")})
      check_all_plans(model);
  }

  TEST_CASE("one sample is enough; without another number a pass has those of the largest micro-batch") {
    const NamedTensors weights = trained(test::mlp(2)), inputs = inputs_of(test::mlp(2), 1);
    Files one(inputs, weights);
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}, .replicas = {2, 2}});
    CHECK(test::first_difference(test::ModelAlone(test::mlp(2), weights).outputs(inputs, 1), one.infer(plan)) ==
          "");
    Files files(inputs_of(test::mlp(1), 10), trained(test::mlp(1)));
    files.infer(make_plan({.model = test::mlp(1), .mini_batch = 10, .micro_batches = 3}));  // 4, 3, 3
    CHECK(files.report.micro_batch == 4);
    CHECK(files.report.passes == 3);
  }

  TEST_CASE("outputs may stand in any stage, and there may be several") {
    ModelGraph model = test::mlp(2);
    model.outputs = {"head", "tanh0", "head"};
    const NamedTensors weights = trained(model), inputs = inputs_of(model, 7);
    Files files(inputs, weights);
    const NamedTensors found = files.infer(make_plan({.model = model, .cuts = {2, 4}}));
    REQUIRE(found.size() == 2);
    CHECK(found[0].first == "head");
    CHECK(found[1].second.sizes() == at::IntArrayRef({7, 6}));
    NamedTensors expected = test::ModelAlone(model, weights).outputs(inputs, 2);
    expected.pop_back();  // the one that is named twice
    CHECK(test::first_difference(expected, found) == "");
  }

  TEST_CASE("by hand: three factors, and a model that has neither loss nor targets") {
    ModelGraph model = test::product();
    model.loss.reset();
    model.targets.clear();
    NamedTensors weights;
    for (const auto& [name, factor] : {std::pair{"a.weight", 2.0}, {"b.weight", 3.0}, {"c.weight", 5.0}})
      weights.emplace_back(name, at::full({1, 1}, factor, at::kFloat));
    Files files({{"x", at::arange(5, at::kFloat).reshape({5, 1})}}, weights);
    const NamedTensors found = files.infer(make_plan({.model = model, .cuts = {1, 2}}));
    REQUIRE(found.size() == 1);
    CHECK(found[0].first == "c");
    for (int i = 0; i < 5; ++i) CHECK(found[0].second[i].item<float>() == 30.0F * static_cast<float>(i));
  }

  TEST_CASE("a target that a layer reads is asked for, one that only the loss reads is not") {
    ModelGraph model = test::regression();  // the loss compares with y
    model.targets.push_back({"z", {{2}, DType::float32}});
    model.layers.push_back({"shift", "add", {"head", "z"}, {}, ""});
    model.outputs = {"shift"};
    const NamedTensors weights = trained(model);
    NamedTensors inputs = inputs_of(model, 5);
    Files without(inputs, weights);
    const plan::Plan plan = make_plan({.model = model, .cuts = {1, 3}});
    CHECK(without.refusal(plan) ==
          "inputs.safetensors: no tensor is named \"z\", as the model's input or target is; it has x");
    inputs.emplace_back("z", at::full({5, 2}, 0.5, at::kFloat));
    Files files(inputs, weights);
    CHECK(test::first_difference(test::ModelAlone(model, weights).outputs(inputs, 2), files.infer(plan)) == "");
  }

  TEST_CASE("synthetic inputs are those that a training tests with") {
    const ModelGraph model = test::mlp(2);
    Files files(inputs_of(model, 1), trained(model));
    files.options.data = "synthetic";
    files.options.synthetic_samples = 6;
    const NamedTensors found = files.infer(make_plan({.model = model, .cuts = {2}}));
    const auto samples = run::make_synthetic(resolve(model), 6, 1, run::Subset::test, DType::float32);
    const NamedTensors expected = test::ModelAlone(model, run::read_weights(files.options.initial_weights))
                                      .outputs({{"x", samples.inputs[0].values}}, 2);
    CHECK(test::first_difference(expected, found) == "");
  }

  TEST_CASE("the newest checkpoint of a folder gives the weights") {
    const TestFolder folder;
    run::RunOptions training;
    training.data = "synthetic";
    training.synthetic_samples = 24;
    training.steps = 3;
    training.evaluate = false;
    training.checkpoint = folder.path() / "ck";
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    const NamedTensors weights = test::run_plan(plan, training).tensors, inputs = inputs_of(test::mlp(2), 6);
    Files files(inputs, weights);
    files.options.initial_weights = training.checkpoint;
    CHECK(test::first_difference(test::ModelAlone(test::mlp(2), weights).outputs(inputs, 2),
                                 files.infer(plan)) == "");
  }

  TEST_CASE(
      "what is held does not grow with the samples, and at most two passes for each worker are under way") {
    const ModelGraph model = test::mlp(3);
    const NamedTensors weights = trained(model);
    const plan::Plan plan = make_plan({.model = model, .cuts = {2, 4}});
    std::map<int, Bytes> peaks;
    for (const int samples : {40, 400}) {
      Files files(inputs_of(model, samples), weights);
      std::atomic<int> first = 0, last = 0;
      files.options.before_op = [&](std::int64_t, WorkerId worker, const plan::Op&) {
        if (worker == WorkerId{0}) {
          const int begun = ++first;
          CHECK(begun <= last + 6);
        }
        if (worker == WorkerId{2}) ++last;
      };
      files.infer(plan);
      CHECK(first == samples / 2);
      peaks[samples] = files.report.workers[2].peak;
      CHECK(files.observer.last.done == samples);
      CHECK(files.observer.last.all == samples);
    }
    CHECK(peaks[40] > Bytes(0));
    CHECK(peaks[40] == peaks[400]);
  }

  TEST_CASE("a run that is interrupted or fails leaves no outputs") {
    Files files(inputs_of(test::mlp(2), 40), trained(test::mlp(2)));
    const plan::Plan plan = make_plan({.model = test::mlp(2), .cuts = {2}});
    std::atomic<int> begun = 0;
    files.options.before_op = [&](std::int64_t, WorkerId, const plan::Op&) { ++begun; };
    const run::InferReport report = run::infer(plan, files.options, files.observer, [&] { return begun >= 3; });
    CHECK(report.exit_reason == "interrupted");
    CHECK(report.samples < 40);
    CHECK_FALSE(std::filesystem::exists(files.options.outputs));
    files.options.before_op = [](std::int64_t, WorkerId worker, const plan::Op& op) {
      if (worker == WorkerId{1} && op.micro_batch == 4) throw Error(ErrorKind::run, "out of order");
    };
    CHECK(files.refusal(plan, ErrorKind::run) == "worker 1: stage 1: F1.4: out of order");
    CHECK(files.folder.file_count() == 2);
  }

  TEST_CASE("a worker above its memory limit is named") {
    Files files(inputs_of(test::mlp(2), 4), trained(test::mlp(2)));
    files.options.memory_limit = Bytes(200);
    CHECK(files.refusal(make_plan({.model = test::mlp(2)}), ErrorKind::run).starts_with("worker 0: stage 0: "));
  }

  TEST_CASE("what is wrong with weights and data is found before work starts") {
    const plan::Plan plan = make_plan({.model = test::mlp(1), .cuts = {1}});
    const NamedTensors weights = trained(test::mlp(1)), inputs = inputs_of(test::mlp(1), 4);
    Files files(inputs, weights);
    const auto with_weights = [&](const NamedTensors& tensors) {
      test::write_tensors(files.options.initial_weights, tensors);
      return files.refusal(plan);
    };
    CHECK(with_weights({weights.begin() + 1, weights.end()}) ==
          "weights.safetensors: has no fc0.weight; give all weights of the model \"mlp\"");
    CHECK(with_weights(trained(test::mlp(2))) ==
          "weights.safetensors: tensor \"fc1.weight\": is not in the model; leave such tensors out with "
          "--ignore-unknown-weights");
    CHECK(with_weights(trained(test::skip_mlp(7)))
              .starts_with("weights.safetensors: tensor \"fc0.weight\": has "
                           "the shape [7, 5], the model's has [6, 5]"));
    files.options.initial_weights.clear();
    CHECK(files.refusal(plan, ErrorKind::usage) ==
          "no weights: give them with --initial-weights, or try the plan without any by --random-weights");
    files.options.random_weights = true;
    const auto with_inputs = [&](const NamedTensors& tensors) {
      test::write_tensors(files.options.data, tensors);
      return files.refusal(plan);
    };
    CHECK(with_inputs({{"z", inputs[0].second}}) ==
          "inputs.safetensors: no tensor is named \"x\", as the model's input or target is; it has z");
    CHECK(
        with_inputs({{"x", at::full({4, 6}, 1.0)}})
            .starts_with("inputs.safetensors: x: samples have the shape [6], the model's input \"x\" is [5]"));
    CHECK(with_inputs({{"x", at::full({4, 5}, 1, at::kLong)}}).find("give --scale") != std::string::npos);
    files.options.data = "synthetic";
    files.options.subset = "both";
    files.options.outputs = files.folder.path() / "nowhere" / "outputs.safetensors";
    CHECK(files.refusal(plan, ErrorKind::usage).find("nowhere/outputs.safetensors: cannot be written") !=
          std::string::npos);
  }
}

}  // namespace infer_test

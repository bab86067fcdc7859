// Losses that are means over labels: every plan makes the step of PyTorch's loss over the whole mini-batch,
// however the labels that count fall to micro-batches, replicas, ranks and accumulated mini-batches.
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "librun/checkpoint/weights.h"
#include "librun/data/readers.h"
#include "tests/librun/data_bytes.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/reference.h"
#include "tests/librun/whole_model.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace counted_labels_test {

using namespace pp;

namespace {

constexpr std::int64_t kMean = 1;
constexpr double kRate = 0.1;

/// 24 samples of five numbers with three classes; `ignored` in the place of some labels: of samples 0 to 2 and
/// 8 to 10, so that micro-batches of 2 or 3 have none that counts, and of some others.
struct Samples {
  explicit Samples(std::int64_t ignored) {
    std::vector<float> values;
    for (int i = 0; i < 24; ++i) {
      for (int d = 0; d < 5; ++d) values.push_back(static_cast<float>(std::sin(0.7 * (7 * i + d))));
      const bool none = i < 3 || (i >= 8 && i < 11) || i % 7 == 5;
      labels.push_back(static_cast<std::int8_t>(none ? ignored : i % 3));
    }
    x = at::tensor(values).view({24, 5});
    y = at::tensor(std::vector<std::int64_t>(labels.begin(), labels.end()));
  }
  void write(const TestFolder& folder, const std::string& subset = "train") const {
    const std::string_view bytes(static_cast<const char*>(x.const_data_ptr()), x.nbytes());
    folder.write(subset + "-images.idx", run::idx_bytes(run::ElementType::float32, {24, 5}, bytes));
    folder.write(subset + "-labels.idx",
                 run::idx_bytes(run::ElementType::int8, {24}, pp::test::bytes_of(labels)));
  }
  at::Tensor x, y;
  std::vector<std::int8_t> labels;
};

/// test::mlp(1) with a loss of LibTorch's call, as imported modules have it.
ModelGraph with_call(std::int64_t ignored, bool class_weights) {
  Json json = to_json(pp::test::mlp(1));
  json["loss"] = parse_json(R"({ "op": "graph", "inputs": ["head", "y"],
    "nodes": [
      { "name": "flat", "op": "aten", "inputs": ["y"],
        "call": { "target": "aten::view", "arguments": { "self": { "input": 0 }, "size": [-1] },
                  "outputs": [{ "dtype": "int64", "shape": [] }] } },
      { "name": "ce", "op": "aten", "inputs": ["head", "flat"],
        "call": { "target": "aten::cross_entropy_loss",
                  "arguments": { "self": { "input": 0 }, "target": { "input": 1 } },
                  "outputs": [{ "shape": [], "rows": 0 }] } },
      { "name": "half", "op": "aten", "inputs": ["ce"],
        "call": { "target": "aten::mul.Scalar", "arguments": { "self": { "input": 0 }, "other": 0.5 },
                  "outputs": [{ "shape": [], "rows": 0 }] } } ],
    "outputs": ["half"] })");
  Json& call = json["loss"]["nodes"][1]["call"];
  call["arguments"]["ignore_index"] = ignored;
  if (class_weights) {
    call["arguments"]["weight"] = {{"constant", "w"}};
    call["constants"] = parse_json(R"([{ "name": "w", "shape": [3], "values": [1.0, 5.0, 20.0] }])");
  }
  return model_from_json(json);
}

/// Two means of different labels, one with class weights, and the mean of the squared logits: as heads
/// with labels of their own and a penalty.
ModelGraph with_several() {
  ModelGraph graph = with_call(-100, false);
  Json json = to_json(graph);
  Json& nodes = json["loss"]["nodes"];
  for (const char* node : {
           R"({ "name": "ones", "op": "aten", "inputs": ["flat"],
                "call": { "target": "aten::eq.Scalar", "arguments": { "self": { "input": 0 }, "other": 1 },
                          "outputs": [{ "dtype": "bool", "shape": [] }] } })",
           R"({ "name": "others", "op": "aten", "inputs": ["flat", "ones"],
                "call": { "target": "aten::masked_fill.Scalar",
                          "arguments": { "self": { "input": 0 }, "mask": { "input": 1 }, "value": -100 },
                          "outputs": [{ "dtype": "int64", "shape": [] }] } })",
           R"({ "name": "second", "op": "aten", "inputs": ["head", "others"],
                "call": { "target": "aten::cross_entropy_loss",
                          "arguments": { "self": { "input": 0 }, "target": { "input": 1 },
                                         "weight": { "constant": "w" } },
                          "constants": [{ "name": "w", "shape": [3], "values": [1.0, 5.0, 20.0] }],
                          "outputs": [{ "shape": [], "rows": 0 }] } })",
           R"({ "name": "squares", "op": "aten", "inputs": ["head"],
                "call": { "target": "aten::square", "arguments": { "self": { "input": 0 } },
                          "outputs": [{ "shape": [3] }] } })",
           R"({ "name": "penalty", "op": "aten", "inputs": ["squares"],
                "call": { "target": "aten::mean", "arguments": { "self": { "input": 0 } },
                          "outputs": [{ "shape": [], "rows": 0 }] } })",
           R"({ "name": "heads", "op": "aten", "inputs": ["half", "second"],
                "call": { "target": "aten::add.Tensor",
                          "arguments": { "self": { "input": 0 }, "other": { "input": 1 } },
                          "outputs": [{ "shape": [], "rows": 0 }] } })",
           R"({ "name": "total", "op": "aten", "inputs": ["heads", "penalty"],
                "call": { "target": "aten::add.Tensor",
                          "arguments": { "self": { "input": 0 }, "other": { "input": 1 } },
                          "outputs": [{ "shape": [], "rows": 0 }] } })"}) {
    nodes.push_back(parse_json(node));
  }
  json["loss"]["outputs"] = {"total"};
  return model_from_json(json);
}

/// What PyTorch does with whole mini-batches: plain SGD on at::cross_entropy_loss.
struct Book {
  std::int64_t ignored = -100;
  std::optional<at::Tensor> class_weights = {};
  double factor = 1;
  bool several = false;  ///< the loss of with_several()
  std::vector<double> losses = {};

  pp::test::NamedTensors train(pp::test::NamedTensors weights, const Samples& samples, int mini_batch) {
    for (auto& [name, tensor] : weights) tensor = tensor.detach().clone().requires_grad_();
    for (int first = 0; first < 24; first += mini_batch) {
      const at::Tensor x = samples.x.narrow(0, first, mini_batch), y = samples.y.narrow(0, first, mini_batch);
      const at::Tensor hidden = at::linear(x, weights[0].second, weights[1].second).tanh();
      const at::Tensor logits = at::linear(hidden, weights[2].second, weights[3].second);
      at::Tensor loss = at::cross_entropy_loss(logits, y, class_weights, kMean, ignored).mul(factor);
      if (several) {
        const at::Tensor weights_of_classes = at::tensor(std::vector<float>{1, 5, 20});
        loss = loss.add(at::cross_entropy_loss(logits, y.masked_fill(y.eq(1), -100), weights_of_classes));
        loss = loss.add(logits.square().mean());
      }
      losses.push_back(loss.item<double>());
      loss.backward();
      for (auto& [name, tensor] : weights) tensor = tensor.detach().sub(tensor.grad(), kRate).requires_grad_();
    }
    return weights;
  }
};

run::RunOptions options_of(const TestFolder& folder) {
  run::RunOptions options;
  options.data = folder.path().string();
  options.epochs = 1;
  options.learning_rate = kRate;
  options.optimizer["momentum"] = 0;
  options.shuffle = false;
  return options;
}

pp::test::NamedTensors initial_weights(const ModelGraph& graph, const run::RunOptions& options) {
  const plan::Plan plan = make_plan({.model = graph});
  run::RunOptions synthetic = options;
  synthetic.data = "synthetic";
  synthetic.synthetic_samples = 8;
  const pp::test::WholeModel model(plan, synthetic);
  return model.named(model.initial_weights(), model.initial_buffers());
}

ModelGraph ignoring(std::int64_t ignored) {
  ModelGraph graph = pp::test::mlp(1);
  if (ignored != -100) graph.loss->attributes["ignore_index"] = ignored;
  return graph;
}

// Micro-batches, replicas and accumulation of plans whose steps are 12 samples.
std::vector<PlanSpec> specs(const ModelGraph& graph) {
  std::vector<PlanSpec> all;
  for (const int micro_batches : {1, 2, 4}) {
    all.push_back({.model = graph, .schedule = "gpipe", .mini_batch = 12, .micro_batches = micro_batches});
    all.push_back({.model = graph, .cuts = {2}, .mini_batch = 12, .micro_batches = micro_batches});
  }
  all.push_back({.model = graph, .cuts = {1}, .replicas = {1, 2}, .mini_batch = 12});
  all.push_back({.model = graph, .cuts = {1}, .replicas = {2, 3}, .mini_batch = 12});
  all.push_back({.model = graph, .cuts = {2}, .schedule = "zb-h1", .mini_batch = 12});
  all.push_back(
      {.model = graph, .replicas = {3}, .schedule = "data-parallel", .mini_batch = 12, .micro_batches = 3});
  return all;
}

void check_against(Book book, const ModelGraph& graph, std::int64_t ignored) {
  const Samples samples(ignored);
  const TestFolder folder;
  samples.write(folder);
  run::RunOptions options = options_of(folder);
  const pp::test::NamedTensors expected = book.train(initial_weights(graph, options), samples, 12);
  for (PlanSpec spec : specs(graph)) {
    for (const int accumulate : {1, 2}) {
      CAPTURE(spec.schedule);
      CAPTURE(spec.micro_batches);
      CAPTURE(accumulate);
      options.accumulate = accumulate;
      spec.mini_batch = 12 / accumulate;
      const pp::test::Run found = pp::test::run_plan(make_plan(spec), options);
      CHECK(pp::test::largest_difference(expected, found.tensors) < 1e-6);
      REQUIRE(found.report.step_losses.size() == 2);
      for (std::size_t i = 0; i < 2; ++i)
        CHECK(found.report.step_losses[i] == doctest::Approx(book.losses[i]).epsilon(1e-6));
    }
  }
}

}  // namespace

TEST_SUITE("librun/counted_labels") {
  TEST_CASE("cross_entropy: -100 and a class that is ignored, as PyTorch's whole mini-batch") {
    check_against({.ignored = -100}, ignoring(-100), -100);
    check_against({.ignored = 2}, ignoring(2), 2);
  }

  TEST_CASE("a graph with LibTorch's loss, scaled: ignored labels and class weights") {
    check_against({.ignored = -100, .factor = 0.5}, with_call(-100, false), -100);
    check_against({.ignored = 0, .factor = 0.5}, with_call(0, false), 0);
    const at::Tensor weights = at::tensor(std::vector<float>{1, 5, 20});
    check_against({.ignored = 1, .class_weights = weights, .factor = 0.5}, with_call(1, true), 1);
  }

  TEST_CASE("several means and a penalty: each mean has the weight of its own labels") {
    check_against({.factor = 0.5, .several = true}, with_several(), -100);
    const Samples samples(-100);
    const TestFolder folder;
    samples.write(folder);
    samples.write(folder, "test");
    run::RunOptions options = options_of(folder);
    options.learning_rate = 1e-30;  // the weights stay
    Book book{.factor = 0.5, .several = true};
    book.train(initial_weights(with_several(), options), samples, 24);
    PlanSpec spec{.model = with_several(), .mini_batch = 12, .micro_batches = 4};
    const pp::test::Run alone = pp::test::run_plan(make_plan(spec), options);
    CHECK(*alone.report.epochs.at(0).test_loss == doctest::Approx(book.losses[0]).epsilon(1e-6));
    options.learning_rate = kRate;
    const pp::test::Run trained = pp::test::run_plan(make_plan(spec), options);
    spec.cuts = {2};
    CHECK(pp::test::first_difference(trained.tensors, pp::test::run_on(2, make_plan(spec), options).tensors) ==
          "");
    spec.recompute = {plan::Recompute::always};
    CHECK(pp::test::first_difference(trained.tensors, pp::test::run_plan(make_plan(spec), options).tensors) ==
          "");
  }

  TEST_CASE("the same micro-batches, the same bits: cuts, schedules, ranks") {
    const TestFolder folder;
    Samples(-100).write(folder);
    const run::RunOptions options = options_of(folder);
    PlanSpec spec{.model = ignoring(-100), .schedule = "gpipe", .mini_batch = 12};
    const pp::test::Run alone = pp::test::run_plan(make_plan(spec), options);
    for (const char* schedule : {"gpipe", "1f1b", "zb-h1"}) {
      CAPTURE(schedule);
      spec.cuts = {2};
      spec.schedule = schedule;
      const pp::test::Run found = pp::test::run_plan(make_plan(spec), options);
      CHECK(pp::test::first_difference(alone.tensors, found.tensors) == "");
      CHECK(found.report.step_losses == alone.report.step_losses);
      CHECK(found.report.epochs.at(0).train_loss == alone.report.epochs.at(0).train_loss);
    }
    const pp::test::Run ranks = pp::test::run_on(2, make_plan(spec), options);
    CHECK(pp::test::first_difference(alone.tensors, ranks.tensors) == "");
    CHECK(ranks.report.step_losses == alone.report.step_losses);
  }

  TEST_CASE("an epoch's loss is the mean over its labels, through a checkpoint as well") {
    const Samples samples(-100);
    const TestFolder folder, checkpoints;
    samples.write(folder);
    samples.write(folder, "test");
    run::RunOptions options = options_of(folder);
    options.learning_rate = 1e-30;  // the weights stay
    const plan::Plan plan =
        make_plan({.model = ignoring(-100), .cuts = {2}, .mini_batch = 6, .micro_batches = 2});
    const pp::test::Run whole = pp::test::run_plan(plan, options);
    Book book;
    const pp::test::NamedTensors weights = initial_weights(ignoring(-100), options);
    book.train(weights, samples, 24);
    const run::EpochReport& epoch = whole.report.epochs.at(0);
    CHECK(epoch.train_loss == doctest::Approx(book.losses[0]).epsilon(1e-6));
    CHECK(*epoch.test_loss == doctest::Approx(book.losses[0]).epsilon(1e-6));
    const at::Tensor hidden = at::linear(samples.x, weights[0].second, weights[1].second).tanh();
    const at::Tensor best = at::linear(hidden, weights[2].second, weights[3].second).argmax(-1);
    const at::Tensor counts = samples.y.ne(-100);
    CHECK(*epoch.test_accuracy == best.eq(samples.y).sum().item<double>() / counts.sum().item<double>());
    options.checkpoint = checkpoints.path() / "ck";
    options.checkpoint_steps = 1;
    options.epochs.reset();
    options.steps = 2;
    pp::test::SilentObserver observer;
    test::run_checked(plan, options, observer);
    options.steps = 4;
    options.resume = options.checkpoint;
    const run::RunReport resumed = test::run_checked(plan, options, observer);
    CHECK(resumed.epochs.at(0).train_loss == epoch.train_loss);
  }

  TEST_CASE("pipedream: the replicas of a round weigh what their labels count") {
    const Samples samples(-100);
    const TestFolder folder;
    samples.write(folder);
    run::RunOptions options = options_of(folder);
    const ModelGraph graph = ignoring(-100);
    Book book;
    // Two replicas with a mini-batch of 6 each make an update of 12.
    const pp::test::NamedTensors expected = book.train(initial_weights(graph, options), samples, 12);
    const plan::Plan plan = make_plan(
        {.model = graph, .replicas = {2}, .schedule = "pipedream", .mini_batch = 6, .micro_batches = 1});
    CHECK(pp::test::largest_difference(expected, pp::test::run_plan(plan, options).tensors) < 1e-6);
  }

  TEST_CASE("a step without a label that counts has no loss: skipped or the end, as any other") {
    Samples samples(-100);
    for (int i = 12; i < 24; ++i) samples.labels[static_cast<std::size_t>(i)] = -100;
    const TestFolder folder;
    samples.write(folder);
    run::RunOptions options = options_of(folder);
    options.steps = 1;
    options.epochs.reset();
    const plan::Plan plan = make_plan({.model = ignoring(-100), .cuts = {2}, .mini_batch = 12});
    const pp::test::Run one = pp::test::run_plan(plan, options);
    options.steps = 2;
    options.on_nan = run::OnNan::skip;
    const pp::test::Run skipped = pp::test::run_plan(plan, options);
    CHECK(skipped.report.skipped_steps == 1);
    CHECK(pp::test::first_difference(one.tensors, skipped.tensors) == "");
    options.on_nan.reset();
    CHECK_THROWS_WITH_AS(
        pp::test::run_plan(plan, options),
        "step 2: none of its labels counts, so it has no loss; give --on-nan skip, or larger mini-batches",
        Error);
  }
}

}  // namespace counted_labels_test

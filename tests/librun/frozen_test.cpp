// Frozen parameters, and those that no gradient reaches: their bytes stay, whatever the schedule, and
// everything else is trained as beside parameters that merely are not updated.
#include <algorithm>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "librun/checkpoint/weights.h"
#include "tests/librun/folder.h"
#include "tests/librun/model_alone.h"
#include "tests/librun/models.h"
#include "tests/librun/promise.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/reference.h"
#include "tests/librun/whole_model.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace frozen_test {

using namespace pp;
using pp::test::NamedTensors;

namespace {

using Names = std::vector<std::string>;

/// A model with the names of what must keep its bytes.
struct Case {
  std::string what;
  ModelGraph model;
  Names kept;
};

Layer& layer_of(ModelGraph& model, const std::string& name) {
  return *std::ranges::find(model.layers, name, &Layer::name);
}

/// Whole layers.
Case with_frozen(std::string what, ModelGraph model, const Names& layers) {
  for (const std::string& name : layers) layer_of(model, name).frozen.all = true;
  Case result{std::move(what), model, {}};
  for (const std::string& name : layers) {
    for (const char* parameter : {".weight", ".bias"}) result.kept.push_back(name + parameter);
  }
  return result;
}

Case bit_fit() {
  Case result{"BitFit", pp::test::mlp(4), {}};
  for (Layer& layer : result.model.layers) {
    if (layer.op != "linear") continue;
    layer.frozen.names = {"weight"};
    result.kept.push_back(layer.name + ".weight");
  }
  return result;
}

/// x [4, 6] -> embed -> two blocks of attention with low-rank additions to query and value -> head. Only the
/// additions train.
Case lora() {
  const auto block = [](const std::string& name, const std::string& input) {
    const auto linear = [&](const std::string& node, const std::string& from, int out, bool frozen) {
      return R"({ "name": ")" + node + R"(", "op": "linear", "inputs": [")" + from +
             R"("], "attributes": { "out_features": )" + std::to_string(out) +
             (frozen ? R"( }, "frozen": true },)" : R"(, "bias": false } },)");
    };
    return R"({ "name": ")" + name + R"(", "op": "graph", "inputs": [")" + input + R"("], "nodes": [)" +
           linear("q", input, 6, true) + linear("qa", input, 2, false) + linear("qb", "qa", 6, false) +
           R"({ "name": "query", "op": "add", "inputs": ["q", "qb"] },)" + linear("k", input, 6, true) +
           linear("v", input, 6, true) + linear("va", input, 2, false) + linear("vb", "va", 6, false) +
           R"({ "name": "value", "op": "add", "inputs": ["v", "vb"] },
              { "name": "mix", "op": "scaled_dot_product_attention", "inputs": ["query", "k", "value"] },)" +
           linear("out", "mix", 6, true) + R"({ "name": "res", "op": "add", "inputs": ["out", ")" + input +
           R"("] }], "outputs": ["res"] },)";
  };
  Case result{"LoRA",
              parse_model(R"({ "format": "pp.model", "version": 1, "name": "lora",
      "inputs": [{ "name": "x", "shape": [4, 6] }], "targets": [{ "name": "y", "dtype": "int64", "shape": [] }],
      "layers": [
        { "name": "embed", "op": "linear", "inputs": ["x"], "attributes": { "out_features": 6 }, "frozen": true },
        { "name": "norm", "op": "layer_norm", "inputs": ["embed"], "frozen": true },)" +
                          block("b0", "norm") + block("b1", "b0") + R"(
        { "name": "flat", "op": "flatten", "inputs": ["b1"] },
        { "name": "head", "op": "linear", "inputs": ["flat"], "attributes": { "out_features": 3 }, "frozen": true } ],
      "outputs": ["head"], "loss": { "op": "cross_entropy", "inputs": ["head", "y"] } })"),
              {"embed.weight", "embed.bias", "norm.weight", "norm.bias", "head.weight", "head.bias"}};
  for (const char* b : {"b0.", "b1."}) {
    for (const char* node : {"q", "k", "v", "out"}) {
      for (const char* parameter : {".weight", ".bias"})
        result.kept.push_back(std::string(b) + node + parameter);
    }
  }
  return result;
}

/// An embedding that is the head, too.
Case frozen_embedding() {
  return {"embedding",
          parse_model(R"({ "format": "pp.model", "version": 1, "name": "tied",
      "inputs": [{ "name": "x", "dtype": "int64", "shape": [4] }],
      "targets": [{ "name": "y", "dtype": "int64", "shape": [4] }],
      "layers": [
        { "name": "emb", "op": "embedding", "inputs": ["x"],
          "attributes": { "num_embeddings": 11, "embedding_dim": 6 }, "frozen": true },
        { "name": "fc0", "op": "linear", "inputs": ["emb"], "attributes": { "out_features": 6 } },
        { "name": "tanh", "op": "tanh", "inputs": ["fc0"] },
        { "name": "norm", "op": "layer_norm", "inputs": ["tanh"] },
        { "name": "fc1", "op": "linear", "inputs": ["norm"], "attributes": { "out_features": 6 } },
        { "name": "head", "op": "linear", "inputs": ["fc1"],
          "attributes": { "out_features": 11, "bias": false }, "weights_of": "emb" } ],
      "outputs": ["head"], "loss": { "op": "cross_entropy", "inputs": ["head", "y"] } })"),
          {"emb.weight"}};
}

/// A second head that the loss does not read.
Case unread_head() {
  Case result{"unread head", pp::test::mlp(3), {"aux.weight", "aux.bias"}};
  result.model.layers.push_back({"aux", "linear", {"tanh1"}, {{"out_features", std::int64_t{2}}}});
  result.model.outputs.push_back("aux");
  return result;
}

/// The first layers stand before a detach.
Case cut_off() {
  Case result{"detach", pp::test::mlp(3), {"fc0.weight", "fc0.bias", "fc1.weight", "fc1.bias"}};
  Layer cut{"cut", "aten", {"tanh1"}, {}};
  cut.call = AtenCall{.target = "aten::detach",
                      .arguments = {{"self", {TensorArgument{}}}},
                      .parameters = {},
                      .buffers = {},
                      .constants = {},
                      .outputs = {{{{6}}}}};
  layer_of(result.model, "fc2").inputs = {"cut"};
  result.model.layers.insert(result.model.layers.begin() + 4, cut);
  return result;
}

std::vector<Case> cases() {
  return {with_frozen("body", pp::test::mlp(4), {"fc0", "fc1", "fc2"}),
          with_frozen("body with norms", pp::test::residual_net(), {"conv0", "bn0", "conv1", "bn1"}),
          with_frozen("norm weights", pp::test::residual_net(), {"conv0", "conv1", "conv2", "conv3", "head"}),
          with_frozen("first and last", pp::test::mlp(4), {"fc0", "head"}),
          bit_fit(),
          lora(),
          frozen_embedding(),
          unread_head(),
          cut_off()};
}

/// The same without the word.
plan::Plan thawed(plan::Plan plan) {
  for (Layer& layer : plan.model.layers) {
    layer.frozen = {};
    for (Layer& node : layer.nodes) node.frozen = {};
  }
  return plan;
}

run::RunOptions short_run() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 24;
  options.steps = 4;
  options.learning_rate = 0.05;
  options.weight_decay = 0.1;
  options.evaluate = false;
  options.random_weights = true;
  return options;
}

PlanSpec cut_evenly(const ModelGraph& model, const std::string& schedule, int stages) {
  PlanSpec spec{.model = model, .schedule = schedule};
  const int layers = static_cast<int>(model.layers.size());
  for (int s = 1; s < stages; ++s) spec.cuts.push_back(s * layers / stages);
  return spec;
}

at::Tensor named(const NamedTensors& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &NamedTensors::value_type::first);
  REQUIRE(found != tensors.end());
  return found->second;
}

NamedTensors initial(const plan::Plan& plan, const run::RunOptions& options) {
  const pp::test::WholeModel model(plan, options);
  return model.named(model.initial_weights(), model.initial_buffers());
}

/// What is kept has its first bytes, all other parameters have moved.
void check_kept(const Case& one, const plan::Plan& plan, const run::RunOptions& options,
                const NamedTensors& found) {
  for (const auto& [name, tensor] : initial(plan, options)) {
    CAPTURE(name);
    const bool buffer = name.find("running_") != std::string::npos;
    const bool kept = std::ranges::count(one.kept, name) > 0;
    CHECK(named(found, name).equal(tensor) == (kept && !buffer));
  }
}

/// Against training on one device of the same model without the word, whose optimizer does not get what is
/// kept.
void check_trained(const Case& one, const plan::Plan& plan, const run::RunOptions& options,
                   const pp::test::Run& found) {
  check_kept(one, plan, options, found.tensors);
  const pp::test::Promise promise = pp::test::promise_of(plan);
  const auto order =
      promise == pp::test::Promise::reversed ? pp::test::Order::descending : pp::test::Order::ascending;
  const pp::test::Trained expected = pp::test::train_alone(thawed(plan), options, order, {}, one.kept);
  if (promise == pp::test::Promise::rounding) {
    CHECK(pp::test::largest_difference(expected.tensors, found.tensors) < 1e-5);
  } else {
    CHECK(pp::test::first_difference(expected.tensors, found.tensors) == "");
  }
}

}  // namespace

TEST_SUITE("librun/frozen") {
  TEST_CASE("synchronous schedules, replicas and recomputation train what is not frozen as one device does") {
    const auto specs = [](const ModelGraph& model) {
      std::vector<PlanSpec> all;
      for (const char* schedule : {"gpipe", "1f1b", "zb-h1", "dapple-pa"})
        all.push_back(cut_evenly(model, schedule, 3));
      for (const char* schedule : {"interleaved", "zb-v"}) all.push_back(cut_evenly(model, schedule, 4));
      all.push_back(cut_evenly(model, "chimera", 2));
      all.push_back(cut_evenly(model, "1f1b", 3));
      all.back().replicas = {2, 1, 2};
      all.push_back(cut_evenly(model, "gpipe", 2));
      all.back().recompute = {plan::Recompute::always};
      all.back().optimizer = plan::OptimizerName::adamw;
      all.push_back(cut_evenly(model, "data-parallel", 1));
      all.back().replicas = {2};
      return all;
    };
    for (const Case& one : cases()) {
      CAPTURE(one.what);
      for (const PlanSpec& spec : specs(one.model)) {
        CAPTURE(spec.schedule);
        CAPTURE(spec.replicas.size());
        const plan::Plan plan = make_plan(spec);
        check_trained(one, plan, short_run(), pp::test::run_plan(plan, short_run()));
      }
    }
  }

  TEST_CASE("asynchronous, swapped and served weights keep what is frozen") {
    for (const Case& one : cases()) {
      CAPTURE(one.what);
      std::vector<PlanSpec> specs;
      // Stages that share a parameter need a flush.
      const bool shares =
          std::ranges::any_of(one.model.layers, [](const Layer& l) { return !l.weights_of.empty(); });
      const int stages = shares ? 1 : 3;
      for (const char* schedule : {"pipedream", "vertical-sync", "spectrain"}) {
        specs.push_back(cut_evenly(one.model, schedule, stages));
        specs.back().micro_batches = 1;
      }
      for (const char* schedule : {"2bw", "xpipe"}) specs.push_back(cut_evenly(one.model, schedule, stages));
      if (!shares) {
        specs.push_back(cut_evenly(one.model, "harmony-pp", 4));
        specs.back().chunks = 2;
      }
      const bool norms = std::ranges::count(one.model.layers, "batch_norm2d", &Layer::op) > 0;
      for (const char* schedule : {"parameter-server", "hogwild", "downpour"}) {
        if (norms) break;  // replicas that never meet would have statistics of their own
        specs.push_back(cut_evenly(one.model, schedule, 1));
        specs.back().replicas = {2};
        specs.back().micro_batches = 1;
      }
      for (const PlanSpec& spec : specs) {
        CAPTURE(spec.schedule);
        const plan::Plan plan = make_plan(spec);
        run::RunOptions options = short_run();
        options.synthetic_samples = 32;  // as many mini-batches for each replica
        if (spec.schedule == "hogwild" || spec.schedule == "downpour")
          options.momentum = 0, options.weight_decay = 0;
        check_kept(one, plan, options, pp::test::run_plan(plan, options).tensors);
      }
    }
  }

  TEST_CASE("clipping counts what is trained, and a resumed training on another plan goes on to the bit") {
    for (const Case& one : cases()) {
      CAPTURE(one.what);
      run::RunOptions options = short_run();
      options.clip_norm = 0.05;
      PlanSpec first = cut_evenly(one.model, "1f1b", 3), second = cut_evenly(one.model, "zb-h1", 2);
      for (PlanSpec* spec : {&first, &second}) spec->optimizer = plan::OptimizerName::adam;
      const plan::Plan last = make_plan(second);
      check_trained(one, last, options, pp::test::run_parts({{make_plan(first), 2}, {last, 4}}, options));
    }
  }

  TEST_CASE("ranks: the same bits as one process") {
    for (const Case& one : cases()) {
      CAPTURE(one.what);
      PlanSpec spec = cut_evenly(one.model, "1f1b", 2);
      spec.replicas = {2, 1};
      const plan::Plan plan = make_plan(spec);
      check_trained(one, plan, short_run(), pp::test::run_on(3, plan, short_run()));
    }
  }

  TEST_CASE("ten steps of imported models of which a part trains are those of torch.optim") {
    for (const char* kind : {"body", "lora", "bitfit", "norms", "embedding"}) {
      CAPTURE(kind);
      const std::string path = pp::test::test_data("import/tuned-") + kind;
      const ModelGraph model = parse_model(read_file(path + ".json"));
      NamedTensors data, after;
      for (const auto& [name, tensor] : run::read_weights(path + ".golden.safetensors")) {
        const bool parameter = name.starts_with("after.");
        (parameter ? after : data).emplace_back(parameter ? name.substr(6) : name, tensor);
      }
      const TestFolder folder;
      pp::test::write_tensors(folder.path() / "train.safetensors", data);
      run::RunOptions options;
      options.data = (folder.path() / "train.safetensors").string();
      options.initial_weights = path + ".weights.safetensors";
      options.steps = 10;
      options.learning_rate = 0.05;
      options.weight_decay = 0.1;  // and the momentum of 0.9
      PlanSpec spec = cut_evenly(model, "1f1b", 3);
      spec.mini_batch = 4;
      spec.micro_batches = 2;
      const NamedTensors found = pp::test::run_plan(make_plan(spec), options).tensors;
      for (const auto& [name, tensor] : after) {
        CAPTURE(name);
        CHECK(named(found, name).sub(tensor).abs().max().item<double>() < 1e-5);
      }
      for (const auto& [name, tensor] : run::read_weights(options.initial_weights)) {
        CAPTURE(name);
        CHECK(named(after, name).equal(tensor) == named(found, name).equal(tensor));
      }
    }
  }

  TEST_CASE("weights without the frozen ones are refused, without others they are not") {
    const Case one = lora();
    const plan::Plan plan = make_plan(cut_evenly(one.model, "1f1b", 2));
    const NamedTensors all = initial(plan, short_run());
    const TestFolder folder;
    const auto checked_without = [&](const Names& names) -> std::string {
      NamedTensors rest = all;
      std::erase_if(rest, [&](const auto& named) { return std::ranges::count(names, named.first) > 0; });
      pp::test::write_tensors(folder.path() / "w.safetensors", rest);
      run::RunOptions options = short_run();
      options.random_weights = false;
      options.initial_weights = folder.path() / "w.safetensors";
      try {
        return run::check(plan, options).empty() ? "accepted" : "warned";
      } catch (const Error& error) {
        return error.what();
      }
    };
    CHECK(checked_without({}) == "accepted");
    CHECK(checked_without({"b0.qa.weight"}) == "warned");
    CHECK(checked_without({"b0.qa.weight", "b1.k.bias", "embed.weight"}) ==
          (folder.path() / "w.safetensors").string() +
              ": frozen parameters are not in it and would stay as they are drawn (embed.weight, b1.k.bias); "
              "give "
              "them with --initial-weights, or say --random-weights if drawn ones are meant");
  }

  TEST_CASE("optimizer state is of what is trained alone, and a model without any is refused") {
    const Case one = lora();
    const TestFolder folder;
    run::RunOptions options = short_run();
    options.checkpoint = folder.path();
    const plan::Plan plan = make_plan(cut_evenly(one.model, "1f1b", 2));
    pp::test::run_plan(plan, options);
    Names names;
    for (const auto& [name, tensor] : run::read_weights(folder.path() / "step-4" / "optimizer.safetensors"))
      names.push_back(name);
    std::ranges::sort(names);
    CHECK(names == Names{"b0.qa.weight.momentum_buffer", "b0.qb.weight.momentum_buffer",
                         "b0.va.weight.momentum_buffer", "b0.vb.weight.momentum_buffer",
                         "b1.qa.weight.momentum_buffer", "b1.qb.weight.momentum_buffer",
                         "b1.va.weight.momentum_buffer", "b1.vb.weight.momentum_buffer"});
    const ModelGraph nothing = with_frozen("all", pp::test::mlp(1), {"fc0", "head"}).model;
    pp::test::SilentObserver observer;
    CHECK_THROWS_WITH(
        test::run_checked(make_plan({.model = nothing}), short_run(), observer),
        "model \"mlp\": nothing can be trained: its parameters are frozen, or the loss depends on none "
        "of them");
  }
}

}  // namespace frozen_test

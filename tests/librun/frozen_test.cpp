// Frozen parameters against torch.optim, in files of weights and in checkpoints; that they keep their bytes,
// whatever is combined: promises_test.cpp.
#include <algorithm>
#include <string>
#include <vector>

#include "libprofile/core/file.h"
#include "librun/checkpoint/weights.h"
#include "tests/librun/folder.h"
#include "tests/librun/model_alone.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/librun/whole_model.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace frozen_test {

using namespace pp;
using pp::test::NamedTensors;

namespace {

using Names = std::vector<std::string>;

run::RunOptions short_run() {
  run::RunOptions options = pp::test::synthetic_options(4);
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

}  // namespace

TEST_SUITE("librun/frozen") {
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
    const ModelGraph one = pp::test::lora();
    const plan::Plan plan = make_plan(cut_evenly(one, "1f1b", 2));
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
    const ModelGraph one = pp::test::lora();
    const TestFolder folder;
    run::RunOptions options = short_run();
    options.checkpoint = folder.path();
    const plan::Plan plan = make_plan(cut_evenly(one, "1f1b", 2));
    pp::test::run_plan(plan, options);
    Names names;
    for (const auto& [name, tensor] : run::read_weights(folder.path() / "step-4" / "optimizer.safetensors"))
      names.push_back(name);
    std::ranges::sort(names);
    CHECK(names == Names{"b0.qa.weight.momentum_buffer", "b0.qb.weight.momentum_buffer",
                         "b0.va.weight.momentum_buffer", "b0.vb.weight.momentum_buffer",
                         "b1.qa.weight.momentum_buffer", "b1.qb.weight.momentum_buffer",
                         "b1.va.weight.momentum_buffer", "b1.vb.weight.momentum_buffer"});
    ModelGraph nothing = pp::test::mlp(1);
    for (Layer& layer : nothing.layers) layer.frozen.all = layer.op == "linear";
    pp::test::SilentObserver observer;
    CHECK_THROWS_WITH(
        test::run_checked(make_plan({.model = nothing}), short_run(), observer),
        "model \"mlp\": nothing can be trained: its parameters are frozen, or the loss depends on none "
        "of them");
  }
}

}  // namespace frozen_test

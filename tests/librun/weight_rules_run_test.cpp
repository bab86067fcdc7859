// --no-decay and --lr-factors through whole trainings.
#include <string>

#include "libprofile/core/file.h"
#include "librun/checkpoint/weights.h"
#include "tests/librun/folder.h"
#include "tests/librun/model_alone.h"
#include "tests/librun/reference.h"
#include "tests/support/places.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace weight_rules_run_test {

using namespace pp;
using pp::test::NamedTensors;

namespace {

const run::WeightRules kRules{.no_decay = {"bias", "norm"}, .rate_factors = {{"tokens", 0.1}, {"head.*", 2}}};

/// What torch.optim.AdamW was given, with those rules as groups of parameters
/// (tests/scripts/make_import_fixtures.py).
struct Grouped {
  ModelGraph model = parse_model(read_file(pp::test::test_data("import/tuned-grouped.json")));
  NamedTensors data, after;
  TestFolder folder;
  run::RunOptions options;

  Grouped() {
    for (const auto& [name, tensor] :
         run::read_weights(pp::test::test_data("import/tuned-grouped.golden.safetensors"))) {
      const bool parameter = name.starts_with("after.");
      (parameter ? after : data).emplace_back(parameter ? name.substr(6) : name, tensor);
    }
    pp::test::write_tensors(folder.path() / "train.safetensors", data);
    options.data = (folder.path() / "train.safetensors").string();
    options.initial_weights = pp::test::test_data("import/tuned-grouped.weights.safetensors");
    options.steps = 10;
    options.learning_rate = 0.01;
    options.weight_decay = 0.3;
    options.rules = kRules;
  }

  PlanSpec spec(int stages, const char* schedule = "1f1b") const {
    PlanSpec spec{.model = model, .schedule = schedule};
    const int layers = static_cast<int>(model.layers.size());
    for (int s = 1; s < stages; ++s) spec.cuts.push_back(s * layers / stages);
    spec.mini_batch = 4;
    spec.micro_batches = 2;
    spec.optimizer = OptimizerName::adamw;
    return spec;
  }
  NamedTensors trained(const PlanSpec& spec) const {
    return pp::test::run_plan(make_plan(spec), options).tensors;
  }
};

at::Tensor named(const NamedTensors& tensors, const std::string& name) {
  return std::ranges::find(tensors, name, &NamedTensors::value_type::first)->second;
}

}  // namespace

TEST_SUITE("librun/weight_rules") {
  TEST_CASE(
      "ten steps are those of torch.optim's groups of parameters, the same bits for every number of stages") {
    const Grouped grouped;
    const pp::test::Run run = pp::test::run_plan(make_plan(grouped.spec(1)), grouped.options);
    CHECK(std::get<std::string>(run.report.settings.at("no_decay")) == "bias,norm");
    CHECK(std::get<std::string>(run.report.settings.at("lr_factors")) == "tokens=0.1,head.*=2.0");
    const NamedTensors& one = run.tensors;
    for (const auto& [name, tensor] : grouped.after) {
      // Softmax does not see a bias of the keys: its gradient is rounding, whose sign AdamW makes a whole step
      // of.
      if (name == "key.bias") continue;
      CAPTURE(name);
      CHECK(named(one, name).sub(tensor).abs().max().item<double>() < 2e-6);
    }
    for (const int stages : {2, 3})
      CHECK(pp::test::first_difference(one, grouped.trained(grouped.spec(stages))) == "");
    CHECK(pp::test::first_difference(one, grouped.trained(grouped.spec(2, "gpipe"))) == "");
  }

  TEST_CASE("a factor of 0 keeps the weight, and rules that say what holds anyway change no bit") {
    Grouped grouped;
    grouped.options.rules = {.rate_factors = {{"tokens", 0}}};
    const NamedTensors kept = grouped.trained(grouped.spec(2));
    const NamedTensors initial = run::read_weights(grouped.options.initial_weights);
    CHECK(named(kept, "tokens.weight").equal(named(initial, "tokens.weight")));
    CHECK_FALSE(named(kept, "head.weight").equal(named(initial, "head.weight")));
    grouped.options.rules = {};
    const NamedTensors plain = grouped.trained(grouped.spec(2));
    grouped.options.rules = {.rate_factors = {{"head", 1}, {"*", 1}}};
    CHECK(pp::test::first_difference(plain, grouped.trained(grouped.spec(2))) == "");
  }

  TEST_CASE("older weights that an update starts from, and predicted ones, follow the rules") {
    for (const char* schedule : {"pipedream", "2bw", "spectrain"}) {
      CAPTURE(schedule);
      Grouped grouped;
      grouped.options.rules = {.rate_factors = {{"head", 0}}};
      PlanSpec spec = grouped.spec(2, schedule);
      if (spec.schedule != "2bw") spec.micro_batches = 1;
      const NamedTensors found = grouped.trained(spec);
      const NamedTensors initial = run::read_weights(grouped.options.initial_weights);
      CHECK(named(found, "head.weight").equal(named(initial, "head.weight")));
      CHECK_FALSE(named(found, "out.weight").equal(named(initial, "out.weight")));
    }
  }
}

}  // namespace weight_rules_run_test

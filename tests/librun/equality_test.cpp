#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <set>

#include "libprofile/model/families/families.h"
#include "tests/librun/imported_models.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/librun/synthetic_options.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace equality_test {

using namespace pp;

namespace {

run::RunOptions short_run() {
  run::RunOptions options = pp::test::synthetic_options(3);
  options.weight_decay = 0.01;
  options.evaluate = false;
  return options;
}

// `stages`-1 different boundaries, ascending.
std::vector<int> random_cuts(std::mt19937& random, std::size_t layers, int stages) {
  std::set<int> cuts;
  while (static_cast<int>(cuts.size()) < stages - 1) cuts.insert(1 + static_cast<int>(random() % (layers - 1)));
  return {cuts.begin(), cuts.end()};
}

std::string text(const std::vector<int>& cuts) {
  std::string list;
  for (const int cut : cuts) list.append(" ").append(std::to_string(cut));
  return list;
}

}  // namespace

TEST_SUITE("librun/equality") {
  TEST_CASE("amoebanet: every cut equals one stage, which hands on dense gradients where one graph has views") {
    const run::RunOptions options = short_run();
    PlanSpec spec{.model = model::build_family("amoebanet_d:classes=10,image=32,L=3,D=8")};
    const test::Run one = test::run_plan(make_plan(spec), options);
    std::mt19937 random(13);
    for (int stages = 2; stages <= 4; ++stages) {
      spec.cuts = random_cuts(random, spec.model.layers.size(), stages);
      CAPTURE(text(spec.cuts));
      const test::Run found = test::run_plan(make_plan(spec), options);
      CHECK(test::first_difference(one.tensors, found.tensors) == "");
      CHECK(found.report.step_losses == one.report.step_losses);
    }
  }

  TEST_CASE("a learning rate with warm-up and cosine equals the single device at these rates") {
    PlanSpec spec{.model = test::dropout_mlp(), .cuts = {3}};
    run::RunOptions options = short_run();
    options.steps = 6;
    options.lr_schedule = "cosine";
    options.warmup_steps = 2;
    options.lr_min = 0.01;
    const auto rate = [](std::int64_t t) {
      if (t < 2) return 0.05 * static_cast<double>(t + 1) / 2;
      return 0.01 + (0.05 - 0.01) * ((1 + std::cos(std::numbers::pi * static_cast<double>(t - 2) / 4)) / 2);
    };
    const test::Trained expected = test::train_alone(make_plan(spec), options, test::Order::ascending, rate);
    const test::Run found = test::run_plan(make_plan(spec), options);
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    CHECK(found.report.step_losses == expected.losses);
    options.lr_schedule = "constant";
    CHECK(test::first_difference(expected.tensors, test::run_plan(make_plan(spec), options).tensors) != "");
  }

  TEST_CASE("imported layers: pp-run says which tensors start as a guess") {
    test::SilentObserver observer;
    test::run_checked(make_plan({.model = test::imported_attention()}), short_run(), observer);
    const std::string expected =
        "2 tensors of calls of LibTorch, whose initial values are not known, start as a guess "
        "(transformer.h.0.attn.table, transformer.h.0.attn.index); give the model's weights with "
        "--initial-weights";
    CHECK(std::ranges::count(observer.warnings, expected) == 1);
  }

  TEST_CASE("imported layers: tensors are named by their modules, integers stay integers") {
    const test::Run run =
        test::run_plan(make_plan({.model = test::imported_attention(), .cuts = {2}}), short_run());
    std::set<std::string> names;
    for (const auto& [name, tensor] : run.tensors) {
      names.insert(name);
      if (name == "transformer.h.0.attn.index") CHECK((tensor.scalar_type() == at::kLong));
    }
    CHECK(names == std::set<std::string>{"head.bias", "head.weight", "transformer.h.0.attn.index",
                                         "transformer.h.0.attn.qkv.bias", "transformer.h.0.attn.qkv.weight",
                                         "transformer.h.0.attn.table", "transformer.ln_f.bias",
                                         "transformer.ln_f.weight", "transformer.wte.weight"});
  }

  // Steps on the same samples, whose loss falls; a number of bfloat16 has 8 bits.
  TEST_CASE("bfloat16 trains as float32 does") {
    const auto check = [](PlanSpec spec, int steps, double learning_rate, double tolerance) {
      CAPTURE(spec.model.name);
      run::RunOptions options = short_run();
      options.synthetic_samples = 32;
      options.steps = steps;
      options.learning_rate = learning_rate;
      const std::vector<double> whole = test::run_plan(make_plan(spec), options).report.step_losses;
      spec.dtype = DType::bfloat16;
      const std::vector<double> half = test::run_plan(make_plan(spec), options).report.step_losses;
      CHECK(whole.back() < 0.9 * whole.front());
      CHECK(half.back() == doctest::Approx(whole.back()).epsilon(tolerance));
    };
    using enum OptimizerName;
    for (const OptimizerName optimizer : {sgd, adam, adamw, rmsprop, adagrad})
      check({.model = test::mlp(2), .cuts = {2}, .optimizer = optimizer}, 40, 0.05, 0.05);
    for (const std::string model :
         {"lenet5:image=12", "transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0",
          "gnmt:layers=3,width=16,vocabulary=20,source=5,target=5,dropout=0"})
      check({.model = model::build_family(model), .optimizer = adamw}, 32, 0.003, 0.08);
  }

  TEST_CASE("autocast: what crosses a cut behind a product has two bytes a number, weights keep four") {
    // 8 samples of 6 numbers a step, and their gradients back.
    const plan::Plan plan = make_plan({.model = test::mlp(1), .cuts = {1}});
    run::RunOptions options = short_run();
    const test::Run whole = test::run_plan(plan, options);
    options.autocast = Autocast::bfloat16;
    const test::Run half = test::run_plan(plan, options);
    for (std::size_t w = 0; w < 2; ++w) {
      CHECK(whole.report.workers[w].sent_per_step == Bytes(8 * 6 * 4));
      CHECK(half.report.workers[w].sent_per_step == Bytes(8 * 6 * 2));
    }
    for (const auto& [name, tensor] : half.tensors) CHECK((tensor.scalar_type() == at::kFloat));
    CHECK(half.report.step_losses.back() == doctest::Approx(whole.report.step_losses.back()).epsilon(0.02));
    CHECK(half.report.step_losses.back() != whole.report.step_losses.back());
  }
}

}  // namespace equality_test

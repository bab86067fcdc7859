#include <algorithm>
#include <cmath>
#include <numbers>
#include <random>
#include <set>

#include "libprofile/model/families/families.h"
#include "tests/librun/imported_models.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace equality_test {

using namespace pp;

namespace {

run::RunOptions short_run() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 24;
  options.steps = 3;
  options.learning_rate = 0.05;
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

// Weights and losses of gpipe and 1f1b with 1 to 4 stages at seeded cuts, against training by the book: every
// bit.
void check_all_plans(PlanSpec spec, const run::RunOptions& options) {
  const test::Trained expected = test::train_alone(make_plan(spec), options);
  std::mt19937 random(11);
  for (int stages = 1; stages <= 4; ++stages) {
    for (const char* schedule : {"gpipe", "1f1b"}) {
      spec.schedule = schedule;
      spec.cuts = random_cuts(random, spec.model.layers.size(), stages);
      const std::string where = std::string(schedule) + ", cuts" + text(spec.cuts);
      CAPTURE(where);
      const test::Run found = test::run_plan(make_plan(spec), options);
      CHECK(test::first_difference(expected.tensors, found.tensors) == "");
      CHECK(found.report.step_losses == expected.losses);
    }
  }
}

}  // namespace

TEST_SUITE("librun/equality") {
  TEST_CASE("mlp: every cut of gpipe and 1f1b equals the single device bit for bit") {
    check_all_plans({.model = model::build_family("mlp:inputs=12,width=16,layers=4,classes=4,dropout=0.3")},
                    short_run());
  }

  TEST_CASE("lenet5: every cut equals the single device") {
    check_all_plans({.model = model::build_family("lenet5:image=12")}, short_run());
  }

  TEST_CASE("resnet18: every cut equals the single device, through residual edges and running statistics") {
    check_all_plans({.model = model::build_family("resnet18:classes=4,image=32,width=4")}, short_run());
  }

  TEST_CASE("transformer: every cut equals the single device, with dropout on") {
    check_all_plans({.model = model::build_family(
                         "transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0.2")},
                    short_run());
  }

  TEST_CASE("encoder and decoder, recurrences, long skips: every cut equals the single device") {
    for (const char* family :
         {"t5_small:layers=2,width=16,heads=2,hidden=24,vocabulary=13,source=9,target=7,dropout=0.1",
          "gnmt:layers=3,width=8,vocabulary=13,source=5,target=4", "unet:image=64,B=2,C=4"}) {
      CAPTURE(std::string(family));
      check_all_plans({.model = model::build_family(family)}, short_run());
    }
  }

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

  TEST_CASE("gradients whose norm over all stages is too large are scaled as on the single device") {
    // The first model has weights with copies in two stages, the second one batch norm.
    for (PlanSpec spec : {PlanSpec{.model = test::shared_mlp(), .cuts = {5}},
                          PlanSpec{.model = test::residual_net(), .cuts = {4, 9}}}) {
      CAPTURE(spec.model.name);
      for (const char* schedule : {"1f1b", "gpipe"}) {
        spec.schedule = schedule;
        run::RunOptions options = short_run();
        const test::Trained free = test::train_alone(make_plan(spec), options);
        options.clip_norm = 1e6;  // never reached
        CHECK(test::first_difference(free.tensors, test::run_plan(make_plan(spec), options).tensors) == "");
        options.clip_norm = 0.05;  // always exceeded
        const test::Trained expected = test::train_alone(make_plan(spec), options);
        CHECK(test::first_difference(free.tensors, expected.tensors) != "");
        const test::Run found = test::run_plan(make_plan(spec), options);
        CHECK(test::first_difference(expected.tensors, found.tensors) == "");
        CHECK(found.report.step_losses == expected.losses);
      }
    }
    PlanSpec replicated{.model = test::mlp(2), .cuts = {2}, .replicas = {2, 1}};
    run::RunOptions options = short_run();
    options.clip_norm = 0.05;
    const test::Trained expected = test::train_alone(make_plan(replicated), options);
    CHECK(test::largest_difference(expected.tensors, test::run_plan(make_plan(replicated), options).tensors) <
          1e-6);
  }

  TEST_CASE("tied weights in one stage: the uses are added in ascending layer order") {
    const PlanSpec spec{
        .model = model::build_family("transformer:layers=1,width=16,heads=2,vocabulary=20,sequence=8,tied=1")};
    const run::RunOptions options = short_run();
    const test::Trained expected = test::train_alone(make_plan(spec), options);
    CHECK(test::first_difference(expected.tensors, test::run_plan(make_plan(spec), options).tensors) == "");
  }

  TEST_CASE("copies of tied weights in several stages: every cut equals the single device bit for bit") {
    check_all_plans(
        {.model = model::build_family("transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,tied=1")},
        short_run());
    // Three users: cuts leave one, two or all of them in a stage.
    check_all_plans({.model = test::shared_mlp()}, short_run());
    check_all_plans(
        {.model = model::build_family("transformer:layers=1,width=16,heads=2,vocabulary=20,sequence=8,tied=1"),
         .optimizer = plan::OptimizerName::adamw},
        short_run());
  }

  TEST_CASE("imported layers, graphs and calls of LibTorch: every cut equals the single device, buffers too") {
    check_all_plans({.model = test::imported_residual()}, short_run());
    check_all_plans({.model = test::imported_attention()}, short_run());
    check_all_plans({.model = test::imported_attention(), .dtype = DType::float64}, short_run());
    run::RunOptions options = short_run();
    options.autocast = Autocast::bfloat16;
    check_all_plans({.model = test::imported_residual()}, options);
    check_all_plans({.model = test::imported_attention()}, options);
  }

  TEST_CASE("imported layers: split backwards and layers that run again equal the single device bit for bit") {
    for (PlanSpec spec : {PlanSpec{.model = test::imported_residual(), .cuts = {1, 3, 4}},
                          PlanSpec{.model = test::imported_attention(), .cuts = {1, 4, 6}}}) {
      CAPTURE(spec.model.name);
      const test::Trained expected = test::train_alone(make_plan(spec), short_run());
      const auto check = [&](const std::string& what) {
        CAPTURE(what);
        const test::Run found = test::run_plan(make_plan(spec), short_run());
        CHECK(test::first_difference(expected.tensors, found.tensors) == "");
        CHECK(found.report.step_losses == expected.losses);
      };
      for (const std::string schedule : {"zb-h1", "zb-v", "interleaved"}) {
        spec.schedule = schedule;
        check(schedule);
      }
      spec.schedule = "1f1b";
      spec.recompute = {plan::Recompute::always};
      check("whole stages again");
      spec.recompute = {};
      spec.cuts = {4};
      for (const Layer& layer : spec.model.layers) spec.rerun_layers.push_back(layer.name);
      check("every layer again");
      spec.schedule = "zb-h1";
      check("every layer again, split backward");
    }
  }

  TEST_CASE("imported layers: replicas add to the single device within rounding") {
    for (PlanSpec spec : {PlanSpec{.model = test::imported_residual(), .cuts = {3}, .replicas = {2, 1}},
                          PlanSpec{.model = test::imported_attention(), .cuts = {4}, .replicas = {1, 2}}}) {
      CAPTURE(spec.model.name);
      const test::Trained expected = test::train_alone(make_plan(spec), short_run());
      const test::Run found = test::run_plan(make_plan(spec), short_run());
      // float32 of size 1 after three steps.
      CHECK(test::largest_difference(expected.tensors, found.tensors) < 1e-5);
    }
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

  TEST_CASE("dropout between linears: every cut of gpipe and 1f1b equals the single device bit for bit") {
    check_all_plans({.model = test::dropout_mlp()}, short_run());
  }

  TEST_CASE("batch norm, a residual edge and a long skip: every cut equals the single device, buffers too") {
    check_all_plans({.model = test::residual_net()}, short_run());
  }

  TEST_CASE(
      "gradients over several mini-batches: every cut equals the single device, the last group is smaller") {
    run::RunOptions options = short_run();
    options.accumulate = 3;
    options.synthetic_samples = 38;  // 8, 8, 8 | 8, 6
    options.steps = 5;               // two epochs and a half
    options.clip_norm = 0.5;
    for (const ModelGraph& model : {test::dropout_mlp(), test::residual_net(), test::shared_mlp()}) {
      CAPTURE(model.name);
      check_all_plans({.model = model}, options);
    }
    const PlanSpec split{.model = test::dropout_mlp(), .cuts = {3, 6}, .schedule = "zb-h1"};
    const test::Trained expected = test::train_alone(make_plan(split), options);
    CHECK(test::first_difference(expected.tensors, test::run_plan(make_plan(split), options).tensors) == "");
  }

  TEST_CASE("channels last: every plan has the bits of one stage, and the contiguous single device's values") {
    for (const ModelGraph& model :
         {test::residual_net(), model::build_family("vgg11:classes=4,image=32,width=4,batch_norm=1")}) {
      CAPTURE(model.name);
      PlanSpec spec{.model = model, .dtype = DType::float64};
      const test::Trained contiguous = test::train_alone(make_plan(spec), short_run());
      spec.memory_format = MemoryFormat::channels_last;
      const test::Run one = test::run_plan(make_plan(spec), short_run());
      CHECK(test::largest_difference(contiguous.tensors, one.tensors) < 1e-9);
      spec.cuts = {3, 7, 10};
      for (const char* const schedule : {"gpipe", "1f1b", "zb-h1"}) {
        CAPTURE(schedule);
        spec.schedule = schedule;
        CHECK(test::first_difference(one.tensors, test::run_plan(make_plan(spec), short_run()).tensors) == "");
      }
      spec.recompute = {plan::Recompute::always};
      spec.schedule = "1f1b";
      CHECK(test::first_difference(one.tensors, test::run_plan(make_plan(spec), short_run()).tensors) == "");
      spec.recompute = {};
      spec.replicas = {2, 1, 2, 1};
      CHECK(test::largest_difference(one.tensors, test::run_plan(make_plan(spec), short_run()).tensors) < 1e-9);
    }
    // In float32 kernels may round otherwise.
    PlanSpec spec{.model = model::build_family("vgg11:classes=4,image=32,width=16")};
    const test::Run contiguous = test::run_plan(make_plan(spec), short_run());
    spec.memory_format = MemoryFormat::channels_last;
    const test::Run last = test::run_plan(make_plan(spec), short_run());
    CHECK(test::largest_difference(contiguous.tensors, last.tensors) < 1e-4);
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
    using enum plan::OptimizerName;
    for (const plan::OptimizerName optimizer : {sgd, adam, adamw, rmsprop, adagrad})
      check({.model = test::mlp(2), .cuts = {2}, .optimizer = optimizer}, 40, 0.05, 0.05);
    for (const std::string model :
         {"lenet5:image=12", "transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0",
          "gnmt:layers=3,width=16,vocabulary=20,source=5,target=5,dropout=0"})
      check({.model = model::build_family(model), .optimizer = adamw}, 32, 0.003, 0.08);
  }

  TEST_CASE("autocast to bfloat16: every cut equals the single device, with layers that run again") {
    run::RunOptions options = short_run();
    options.autocast = Autocast::bfloat16;
    for (const ModelGraph& model :
         {test::dropout_mlp(), test::residual_net(), model::build_family("lenet5:image=12"),
          model::build_family("transformer:layers=2,width=16,heads=2,vocabulary=20,sequence=8,dropout=0.2")}) {
      CAPTURE(model.name);
      check_all_plans({.model = model}, options);
    }
    PlanSpec spec{.model = test::dropout_mlp(), .cuts = {4}, .rerun_layers = {"relu0", "fc1", "drop1"}};
    const test::Trained expected = test::train_alone(make_plan(spec), options);
    CHECK(test::first_difference(expected.tensors, test::run_plan(make_plan(spec), options).tensors) == "");
    spec.rerun_layers = {};
    spec.recompute = {plan::Recompute::always};
    CHECK(test::first_difference(expected.tensors, test::run_plan(make_plan(spec), options).tensors) == "");
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

  TEST_CASE("three mini-batches of an update are one of three times the size and of as many micro-batches") {
    PlanSpec spec{.model = test::residual_net(), .cuts = {3, 7}};
    run::RunOptions options = short_run();
    options.synthetic_samples = 48;
    options.steps = 4;
    options.accumulate = 3;
    const test::Run accumulated = test::run_plan(make_plan(spec), options);
    spec.mini_batch *= 3;
    spec.micro_batches *= 3;
    options.accumulate = 1;
    const test::Run whole = test::run_plan(make_plan(spec), options);
    CHECK(test::first_difference(whole.tensors, accumulated.tensors) == "");
    CHECK(whole.report.step_losses == accumulated.report.step_losses);
    CHECK(accumulated.report.workers[0].peak_in_flight == 3);
  }

  TEST_CASE("every optimizer, with decay: every cut equals the single device") {
    for (const auto& [optimizer, name] : EnumNames<plan::OptimizerName>::table) {
      CAPTURE(std::string(name));
      run::RunOptions options = short_run();
      options.weight_decay = 0.01;
      if (optimizer == plan::OptimizerName::sgd) options.nesterov = true;
      if (optimizer == plan::OptimizerName::rmsprop) options.momentum = 0.5;
      if (optimizer == plan::OptimizerName::adagrad) options.lr_decay = 0.1;
      check_all_plans({.model = test::dropout_mlp(), .optimizer = optimizer}, options);
    }
  }

  TEST_CASE("unequal micro-batches and a partial last mini-batch are weighted by their samples") {
    // 10 in 4 is 3,3,2,2; 26 samples are two mini-batches of 10 and one of 6, which is 2,2,1,1.
    run::RunOptions options = short_run();
    options.synthetic_samples = 26;
    options.steps = 4;
    check_all_plans({.model = test::dropout_mlp(), .mini_batch = 10}, options);
  }

  TEST_CASE("every single cut of the residual net, two stages") {
    const run::RunOptions options = short_run();
    PlanSpec spec{.model = test::residual_net()};
    const test::Trained expected = test::train_alone(make_plan(spec), options);
    for (int cut = 1; cut < static_cast<int>(spec.model.layers.size()); ++cut) {
      CAPTURE(cut);
      spec.cuts = {cut};
      CHECK(test::first_difference(expected.tensors, test::run_plan(make_plan(spec), options).tensors) == "");
    }
  }
}

}  // namespace equality_test

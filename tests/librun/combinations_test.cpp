// Models x schedules x stages x micro-batches x replicas x recomputation x resumed on another plan, drawn by a
// seed: the weights are what `promise_of` says, against training by the book.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "libplan/schedule/validate.h"
#include "libplan/search/zero_bubble/auto_zero_bubble.h"
#include "libprofile/model/families/families.h"
#include "tests/lab/fuzz/random.h"
#include "tests/librun/models.h"
#include "tests/librun/promise.h"
#include "tests/librun/reference.h"
#include "tests/librun/whole_model.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace combinations_test {

using namespace pp;
using fuzz::Random;

namespace {

constexpr int kDraws = 3;  // of each model and schedule

struct Kind {
  std::string schedule;
  int chunks = 1;  ///< stages per worker
  enum { none, any, equal, one_stage } replicas = none;
  bool (*fits)(int workers, int micro_batches) = [](int, int) { return true; };
};

// Every synchronous schedule that pp-run executes; `pp-plan schedules` says what each needs.
const std::vector<Kind> kKinds{
    {"naive", 1, Kind::none, [](int, int m) { return m == 1; }},
    {"data-parallel", 1, Kind::one_stage},
    {"gpipe", 1, Kind::any},
    {"gpipe-reverse", 1, Kind::any},
    {"1f1b", 1, Kind::any},
    {"hybrid", 1, Kind::equal},
    {"dapple-pa"},  // replicas would split micro-batches
    {"dapple-pb"},
    {"interleaved", 2, Kind::none, [](int k, int m) { return m % k == 0; }},
    {"looped-bfs", 2},
    {"zb-h1"},
    {"zb-h2"},
    {"auto-zb"},
    {"zb-v", 2},
    {"dualpipe-v", 2, Kind::none, [](int k, int m) { return m >= 2 * k; }},
    {"chimera", 1, Kind::none, [](int k, int m) { return k % 2 == 0 && m % k == 0; }},
};

// Chains, dropout, batch norm with skips over several stages, shared weights, recurrences, two inputs.
std::vector<ModelGraph> models() {
  return {
      test::mlp(4),
      test::dropout_mlp(),
      test::residual_net(),
      test::shared_mlp(),
      model::build_family("lenet5:image=12"),
      model::build_family("gnmt:layers=2,width=8,vocabulary=11,source=4,target=3"),
      model::build_family("transformer:layers=1,width=8,heads=2,vocabulary=12,sequence=6,dropout=0.2,tied=1"),
      model::build_family(
          "t5_small:layers=1,width=8,heads=2,hidden=12,vocabulary=13,source=5,target=4,dropout=0.1")};
}

// `count` different numbers of 1..layers-1, ascending.
std::vector<int> draw_cuts(Random& random, int layers, int count) {
  std::vector<int> cuts;
  for (int boundary = 1; boundary < layers; ++boundary) cuts.push_back(boundary);
  random.shuffle(cuts);
  cuts.resize(static_cast<std::size_t>(count));
  std::ranges::sort(cuts);
  return cuts;
}

std::vector<int> draw_replicas(Random& random, const Kind& kind, int places) {
  if (kind.replicas == Kind::one_stage) return {random.integer(1, 3)};
  if (kind.replicas == Kind::equal)
    return std::vector<int>(static_cast<std::size_t>(places), random.integer(1, 2));
  std::vector<int> replicas(static_cast<std::size_t>(places), 1);
  if (kind.replicas == Kind::any && random.one_in(3)) random.pick(replicas) = random.integer(2, 3);
  return replicas;
}

// Sets programs that another order of costs would not give.
void draw_zero_bubble(Random& random, plan::Plan& plan) {
  plan::ZeroBubbleRequest request;
  request.pipeline.programs.micro_batches = plan.training.micro_batches;
  request.evaluations = 200;
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    request.pipeline.programs.stage_workers.push_back({WorkerId{static_cast<int>(s)}});
    plan::StageCosts& costs = request.pipeline.stages.emplace_back();
    costs.forward = Seconds(random.integer(1, 5));
    costs.input_gradient = Seconds(random.integer(1, 5));
    costs.weight_gradient = Seconds(random.integer(1, 5));
    costs.backward = costs.input_gradient + costs.weight_gradient;
  }
  const plan::ZeroBubbleResult found = plan::search_zero_bubble(request);
  for (std::size_t w = 0; w < plan.workers.size(); ++w) {
    // The updates (and ARg before them) stay as the rule has them.
    plan::Program& program = plan.workers[w].program.program;
    std::erase_if(program, [](const plan::Op& op) { return plan::has_micro_batch(op.kind); });
    plan::Program searched = found.programs.workers[w];
    std::erase_if(searched, [](const plan::Op& op) { return !plan::has_micro_batch(op.kind); });
    program.insert(program.begin(), searched.begin(), searched.end());
  }
  plan.schedule.name = "auto-zb";
}

plan::Plan draw_plan(Random& random, const ModelGraph& model, const Kind& kind, int workers, int micro_batches,
                     DType dtype) {
  const int stages = workers * kind.chunks;
  const int layers = static_cast<int>(model.layers.size());
  PlanSpec spec{.model = model,
                .cuts = draw_cuts(random, layers, stages - 1),
                .schedule = kind.schedule == "auto-zb" ? "zb-h1" : kind.schedule,
                .mini_batch = 12,
                .micro_batches = micro_batches,
                .dtype = dtype};
  if (kind.chunks == 1) spec.replicas = draw_replicas(random, kind, workers);
  switch (random.below(4)) {
    case 0: spec.recompute = {plan::Recompute::always}; break;
    case 1: spec.recompute = {plan::Recompute::except_last}; break;
    case 2:
      for (const auto& layer : model.layers) {
        if (random.one_in(3)) spec.rerun_layers.push_back(layer.name);
      }
      break;
    default: break;
  }
  plan::Plan plan = make_plan(spec);
  if (kind.schedule == "auto-zb" && spec.recompute.empty()) draw_zero_bubble(random, plan);
  return plan;
}

struct Draw {
  std::vector<test::Part> parts;
  run::RunOptions options;
  std::string text;
};

Draw draw(Random& random, const ModelGraph& model, const Kind& kind) {
  Draw result;
  const int layers = static_cast<int>(model.layers.size());
  int workers = 0, micro_batches = 0;
  do {
    workers = kind.replicas == Kind::one_stage ? 1 : random.integer(1, 4);
    micro_batches = random.integer(1, 8);
  } while (workers * kind.chunks > layers || !kind.fits(workers, micro_batches));
  const DType dtype = random.one_in(2) ? DType::float32 : DType::float64;
  const auto next = [&] { return draw_plan(random, model, kind, workers, micro_batches, dtype); };
  if (random.one_in(2)) result.parts.push_back({next(), random.integer(1, 3)});
  result.parts.push_back({next(), 4});
  result.options.data = "synthetic";
  result.options.synthetic_samples = random.one_in(2) ? 36 : 34;  // the last mini-batch has 12 or 10
  result.options.steps = 4;
  result.options.learning_rate = 0.05;
  result.options.weight_decay = 0.01;
  result.options.evaluate = false;
  result.options.seed = random.below(1000);
  for (const test::Part& part : result.parts) {
    result.text += " | " + part.plan.schedule.name + " of " + std::to_string(micro_batches) + ", stages ";
    for (const plan::Stage& stage : part.plan.stages)
      result.text += std::to_string(stage.layers.size()) + "x" + std::to_string(stage.workers.size()) + " ";
    result.text += "to step " + std::to_string(part.end);
  }
  return result;
}

}  // namespace

TEST_SUITE("librun/combinations") {
  TEST_CASE("the gradients by which the book trains are those of one autograd graph") {
    for (const ModelGraph& model : models()) {
      CAPTURE(model.name);
      const plan::Plan plan = make_plan({.model = model, .mini_batch = 12, .dtype = DType::float64});
      run::RunOptions options;
      options.synthetic_samples = 12;
      test::WholeModel whole(plan, options);
      const test::LayerTensors weights = whole.initial_weights();
      const std::vector<std::int64_t> samples{3, 1, 4, 11, 5};
      const auto plain = whole.plain_gradient(weights, samples, 0.3, {7, 1, 2});
      const auto found = whole.gradient(weights, samples, 0.3, {7, 1, 2});
      CHECK(found.loss == doctest::Approx(plain.loss).epsilon(1e-12));
      const auto expected = test::flat(plain.weights), gradients = test::flat(found.weights);
      REQUIRE(gradients.size() == expected.size());
      for (std::size_t i = 0; i < gradients.size(); ++i) CHECK(gradients[i].allclose(expected[i], 1e-9, 1e-11));
    }
  }

  TEST_CASE("drawn plans train to the weights of one device: bit for bit where promised, else to rounding") {
    using enum test::Promise;
    std::map<test::Promise, int> counts;
    Random random(20);
    for (const ModelGraph& model : models()) {
      for (const Kind& kind : kKinds) {
        for (int i = 0; i < kDraws; ++i) {
          const Draw one = draw(random, model, kind);
          CAPTURE(model.name);
          CAPTURE(one.text);
          test::Promise promise = test::promise_of(one.parts.back().plan);
          if (test::promise_of(one.parts.front().plan) != promise) promise = rounding;
          ++counts[promise];
          const auto order = promise == reversed ? test::Order::descending : test::Order::ascending;
          const test::Trained expected = test::train_alone(one.parts.back().plan, one.options, order);
          const test::Run found = test::run_parts(one.parts, one.options);
          if (promise == rounding) {
            // A lost, doubled or misplaced gradient changes the second digit.
            const bool exact = one.parts.back().plan.training.dtype == DType::float64;
            CHECK(test::largest_difference(expected.tensors, found.tensors) < (exact ? 1e-10 : 1e-4));
          } else {
            CHECK(test::first_difference(expected.tensors, found.tensors) == "");
            CHECK(found.report.step_losses == expected.losses);
          }
        }
      }
    }
    CHECK(counts[bits] + counts[reversed] + counts[rounding] == 8 * 16 * kDraws);
    // What is only compared to rounding must stay the exception.
    CHECK(counts[bits] > counts[rounding]);
    CHECK(counts[reversed] > 0);
    MESSAGE(counts[bits], " bit-equal, ", counts[reversed], " in reversed order, ", counts[rounding],
            " to rounding");
  }
}

}  // namespace combinations_test

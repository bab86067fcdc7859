// Half weights with a float32 master, float32 gradients and state (plan::Precision::mixed), against a plain
// loop.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

#include "libplan/search/planner.h"
#include "libprofile/device/process.h"
#include "libprofile/model/families/families.h"
#include "tests/librun/models.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/reference.h"
#include "tests/librun/silent_profiling.h"
#include "tests/librun/synthetic_options.h"
#include "tests/librun/whole_model.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace mixed_test {

using namespace pp;

namespace {

using Tensors = std::vector<at::Tensor>;

run::RunOptions options_of(std::int64_t steps) {
  run::RunOptions options = pp::test::synthetic_options(steps);
  options.learning_rate = 0.01;
  options.weight_decay = 0.01;
  options.shuffle = false;
  options.evaluate = false;
  return options;
}

plan::Plan mixed_plan(PlanSpec spec) {
  spec.dtype = DType::bfloat16;
  spec.precision = plan::Precision::mixed;
  return make_plan(spec);
}

struct Masters {
  Tensors first, last;
};

// Gradients of half weights by one autograd graph for each micro-batch, added up in float32; then torch.optim's
// SGD with momentum, or AdamW, on the master, whose rounded values are the next weights.
Masters train_by_loop(const plan::Plan& plan, const run::RunOptions& options) {
  pp::test::WholeModel model(plan, options);
  pp::test::LayerTensors weights = model.initial_weights();
  Masters masters;
  Tensors first, second;
  for (const at::Tensor& weight : pp::test::flat(weights)) {
    masters.first.push_back(weight.detach().to(at::kFloat));
    masters.last.push_back(masters.first.back().clone());
    first.push_back(at::zeros_like(masters.first.back()));
    second.push_back(at::zeros_like(masters.first.back()));
  }
  const double rate = options.learning_rate, decay = options.weight_decay;
  const int size = plan.training.mini_batch, count = plan.training.micro_batches;
  for (std::int64_t step = 0; step < *options.steps; ++step) {
    Tensors sums;
    for (const at::Tensor& master : masters.last) sums.push_back(at::zeros_like(master));
    for (int m = 0; m < count; ++m) {
      std::vector<std::int64_t> samples(static_cast<std::size_t>(size / count));
      std::iota(samples.begin(), samples.end(), step * size % model.samples() + m * size / count);
      const auto one = model.plain_gradient(weights, samples, 1.0 / count, {options.seed, step, m});
      const Tensors gradients = pp::test::flat(one.weights);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i].add_(gradients[i].to(at::kFloat));
    }
    const auto t = static_cast<double>(step + 1);
    const Tensors halves = pp::test::flat(weights);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      at::Tensor& master = masters.last[i];
      if (plan.training.optimizer == OptimizerName::sgd) {
        const at::Tensor slope = sums[i] + decay * master;
        first[i] = step == 0 ? slope : 0.9 * first[i] + slope;
        master = master - rate * first[i];
      } else {
        master = master - rate * decay * master;
        first[i] = 0.9 * first[i] + 0.1 * sums[i];
        second[i] = 0.999 * second[i] + 0.001 * sums[i] * sums[i];
        const at::Tensor root = (second[i] / (1 - std::pow(0.999, t))).sqrt() + 1e-8;
        master = master - rate * (first[i] / (1 - std::pow(0.9, t))) / root;
      }
      const c10::AutoGradMode no_gradient(false);
      halves[i].copy_(master);
    }
  }
  return masters;
}

// By parameter's name, of the run's last checkpoint.
std::map<std::string, at::Tensor> masters_in(const std::filesystem::path& folder, std::int64_t step) {
  std::map<std::string, at::Tensor> masters;
  const auto checkpoint = folder / ("step-" + std::to_string(step));
  const run::StoredTensors state{run::SafetensorsFile(checkpoint / "optimizer.safetensors")};
  for (const auto& [name, tensor] : run::read_weights(checkpoint / "weights.safetensors"))
    if (state.contains(name + ".master")) masters[name] = state.read(name + ".master");
  return masters;
}

pp::test::Run train(const plan::Plan& plan, const run::RunOptions& options, int ranks = 1) {
  return ranks == 1 ? pp::test::run_plan(plan, options) : pp::test::run_on(ranks, plan, options);
}

/// Bytes are exact after one pass; the times need not be.
Profile measured(const ModelGraph& model, std::int64_t size) {
  profile::prepare_process();
  pp::test::SilentProfiling silent;
  profile::ProfileOptions profiling{
      .micro_batch_sizes = {size}, .precision = 0.5, .budget_per_size = Seconds(0.01)};
  profiling.dtype = DType::bfloat16;
  return profile::profile_model(model, profiling, silent);
}

/// Half weights with a master, whose state the replicas of the one stage divide; a micro-batch each.
plan::Plan planned(const Profile& profile, int replicas) {
  plan::PlanRequest request;
  request.micro_batches = replicas;
  request.mini_batch = replicas * static_cast<int>(profile.micro_batch_sizes.front());
  request.schedule = "data-parallel";
  request.optimizer = OptimizerName::adam;
  request.precision = plan::Precision::mixed;
  request.shard = plan::ShardChoice::optimizer;
  request.replicas = std::vector<int>{replicas};
  const Cluster cluster = flat_cluster(replicas, DeviceKind::cpu, BytesPerSecond(1e9), Seconds(1e-5), Bytes(0));
  return std::get<plan::Plan>(plan::find_plan(profile, cluster, request));
}

}  // namespace

TEST_SUITE("librun/mixed") {
  // Half gradients of two kernels differ by their last bit, 2^-8 of a gradient. A run that added gradients, or
  // updated, in bfloat16 would lose most of these steps: 0.01 times a gradient is below half a unit of a
  // weight.
  TEST_CASE("masters move as those of the plain loop, and weights are their rounded values") {
    for (const OptimizerName optimizer : {OptimizerName::sgd, OptimizerName::adamw}) {
      const plan::Plan plan =
          mixed_plan({.model = pp::test::regression(), .cuts = {2}, .mini_batch = 8, .optimizer = optimizer});
      run::RunOptions options = options_of(6);
      const Masters expected = train_by_loop(plan, options);
      const TestFolder folder;
      options.checkpoint = folder.path() / "ck";
      const pp::test::Run found = train(plan, options);
      const auto masters = masters_in(options.checkpoint, 6);
      REQUIRE(masters.size() == expected.last.size());
      for (std::size_t i = 0; i < found.tensors.size(); ++i) {
        const auto& [name, weight] = found.tensors[i];
        CAPTURE(name);
        const at::Tensor& master = masters.at(name);
        CHECK((master.scalar_type() == at::kFloat));
        CHECK((weight.scalar_type() == at::kBFloat16));
        CHECK(weight.equal(master.to(at::kBFloat16)));
        const double way = (expected.last[i] - expected.first[i]).norm().item<double>();
        CHECK(way > 0);
        CHECK((master - expected.last[i]).norm().item<double>() < 0.02 * way);
      }
    }
  }

  // The weights of a float32 file are finer than bfloat16: the master keeps them, also where nothing moves it.
  TEST_CASE("a master begins with given weights as they are in their file") {
    const TestFolder folder;
    PlanSpec spec{.model = pp::test::regression(), .mini_batch = 8};
    run::RunOptions options = options_of(1);
    options.save_weights = folder.path() / "float32.safetensors";
    pp::test::SilentObserver observer;
    test::run_checked(make_plan(spec), options, observer);
    const auto given = run::read_weights(options.save_weights);
    options.initial_weights = std::exchange(options.save_weights, {});
    options.checkpoint = folder.path() / "ck";
    options.learning_rate = 1e-30;
    options.weight_decay = 0;
    train(mixed_plan(spec), options);
    const auto masters = masters_in(options.checkpoint, 1);
    REQUIRE(masters.size() == given.size());
    for (const auto& [name, weight] : given) CHECK(masters.at(name).equal(weight));
  }

  // 2 bytes of weights, 4 of gradients, 4 of the master and 8 of adam's state a parameter (clusters of
  // libplan/cost/README.md), of which replicas hold a part of the last 12.
  TEST_CASE("bytes are 2 + 4 + 12/q a parameter, and the peak is what the plan promises within 2 %") {
    const Profile profile = measured(model::build_family("mlp:width=1024,layers=4"), 4);
    for (const int replicas : {1, 2, 3}) {
      CAPTURE(replicas);
      const plan::Plan plan = planned(profile, replicas);
      run::RunOptions options = options_of(2);
      options.synthetic_samples = 8 * replicas;
      pp::test::SilentObserver observer;
      const run::RunReport report = test::run_checked(plan, options, observer);
      for (std::size_t w = 0; w < report.workers.size(); ++w) {
        const run::WorkerReport& worker = report.workers[w];
        CHECK(worker.gradients.value == 2 * worker.weights.value);
        CHECK(static_cast<double>(worker.optimizer.value) ==
              doctest::Approx(6.0 * static_cast<double>(worker.weights.value) / replicas).epsilon(0.01));
        CHECK(static_cast<double>(worker.peak.value) ==
              doctest::Approx(static_cast<double>(plan.predicted.workers[w].memory.peak.value)).epsilon(0.02));
      }
    }
  }

  // The table's gradient of 8000 x 64 bfloat16, 1 MB, is made at once and then added in float32. Four tokens
  // save next to nothing, so that moment is the peak: the profile's passes have it, too.
  TEST_CASE("a half gradient that is made at once is in the promise") {
    const Profile profile =
        measured(model::build_family(
                     "transformer:layers=1,width=64,heads=2,vocabulary=8000,sequence=2,tied=0,dropout=0"),
                 2);
    const plan::Plan plan = planned(profile, 1);
    CHECK(profile.layers.front().points.front().workspace >= Bytes(8000 * 64 * 2));
    pp::test::SilentObserver observer;
    const run::RunReport report = test::run_checked(plan, options_of(2), observer);
    CHECK(static_cast<double>(report.workers[0].peak.value) ==
          doctest::Approx(static_cast<double>(plan.predicted.workers[0].memory.peak.value)).epsilon(0.02));
  }

  TEST_CASE("plans that are mixed in name alone, or asynchronous, are refused") {
    const auto refusal = [](const plan::Plan& plan) {
      try {
        run::check(plan, options_of(2));
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("accepted");
    };
    PlanSpec spec{.model = pp::test::regression(), .cuts = {2}, .mini_batch = 8};
    plan::Plan plan = mixed_plan(spec);
    CHECK(refusal(plan) == "accepted");
    plan.training.dtype = DType::float32;
    CHECK(
        refusal(plan) ==
        "/training/precision: mixed keeps a float32 master of half weights, and dtype is float32; profile the "
        "model with --dtype bfloat16");
    spec.schedule = "pipedream";
    spec.micro_batches = 1;
    CHECK(refusal(mixed_plan(spec)) ==
          "the plan is for half weights with a float32 master, which pp-run keeps with synchronous schedules "
          "alone; plan with 1f1b, or with --precision plain");
  }
}

}  // namespace mixed_test

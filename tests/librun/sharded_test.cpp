// Replicas that divide the optimizer's state: the weights and losses of replicas that each hold all of it, bit
// for bit, whatever the model, the schedule, the optimizer, what limits gradients, where workers are, and on
// what the training goes on.
#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "libplan/search/planner.h"
#include "libprofile/device/process.h"
#include "libprofile/model/families/families.h"
#include "librun/checkpoint/checkpoint_folder.h"
#include "tests/lab/fuzz/random.h"
#include "tests/librun/models.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/reference.h"
#include "tests/librun/silent_profiling.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace sharded_test {

using namespace pp;
using fuzz::Random;

namespace {

// Weights that are cut within a parameter, batch norm with skips, weights shared within a stage and between
// stages, and frozen ones.
std::vector<ModelGraph> models() {
  ModelGraph frozen = pp::test::skip_mlp(64);
  frozen.layers[2].frozen.all = true;
  return {
      pp::test::skip_mlp(64),
      pp::test::residual_net(),
      pp::test::shared_mlp(),
      std::move(frozen),
      model::build_family("lenet5:image=12"),
      model::build_family("transformer:layers=1,width=32,heads=2,vocabulary=40,sequence=6,dropout=0.2,tied=1")};
}

struct Draw {
  plan::Plan plan;  ///< whose replicas divide the state
  run::RunOptions options;
  int ranks = 1;
  std::string text;
};

plan::Plan unsharded(plan::Plan plan) {
  plan.training.shard = plan::Shard::none;
  return plan;
}

Draw draw(Random& random, const ModelGraph& model, int replicas) {
  struct Kind {
    const char* name;
    int stages;
    bool all_replicated;
  };
  static constexpr Kind kKinds[]{{"data-parallel", 1, true}, {"gpipe", 2, false}, {"1f1b", 2, false},
                                 {"1f1b", 3, false},         {"hybrid", 2, true}, {"chimera", 2, true}};
  static constexpr plan::OptimizerName kOptimizers[]{plan::OptimizerName::sgd, plan::OptimizerName::adam,
                                                     plan::OptimizerName::adamw, plan::OptimizerName::rmsprop,
                                                     plan::OptimizerName::adagrad};
  Draw result;
  const Kind& kind = kKinds[random.below(std::size(kKinds))];
  const bool chimera = std::string(kind.name) == "chimera";
  const bool channels_last = random.one_in(4) && model.inputs.front().type.shape.size() == 3;
  PlanSpec spec{.model = model,
                .schedule = kind.name,
                .mini_batch = 12,
                .micro_batches = chimera ? 4 : random.integer(replicas, 5),
                .dtype = random.one_in(4) ? DType::float64 : DType::float32,
                .memory_format = channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous,
                .optimizer = kOptimizers[random.below(std::size(kOptimizers))],
                .shard = plan::Shard::optimizer,
                .all_reduce_overlap = random.one_in(2) ? 1.0 : 0.0};
  const int layers = static_cast<int>(model.layers.size());
  std::set<int> cuts;
  while (std::ssize(cuts) < kind.stages - 1) cuts.insert(random.integer(1, layers - 1));
  spec.cuts.assign(cuts.begin(), cuts.end());
  if (!chimera) {
    spec.replicas.assign(static_cast<std::size_t>(kind.stages), kind.all_replicated ? replicas : 1);
    if (!kind.all_replicated) random.pick(spec.replicas) = replicas;
  }
  result.plan = make_plan(spec);
  run::RunOptions& options = result.options;
  options.data = "synthetic";
  options.synthetic_samples = random.one_in(2) ? 36 : 34;  // the last mini-batch has 12 or 10
  options.steps = 4;
  options.learning_rate = 0.05;
  options.weight_decay = 0.01;
  options.random_weights = true;
  options.evaluate = random.one_in(3);
  options.seed = random.below(1000);
  if (random.one_in(2)) options.clip_norm = 0.1;
  if (random.one_in(3)) options.accumulate = 2;
  if (random.one_in(4)) options.on_nan = run::OnNan::skip;
  if (random.one_in(3)) options.loss_scale = 1024;
  if (random.one_in(3)) options.rules = {{"bias"}, {{"weight", 0.5}}};
  if (spec.optimizer == plan::OptimizerName::sgd && random.one_in(3)) options.momentum = 0;
  if (spec.dtype == DType::float32 && random.one_in(3)) options.autocast = Autocast::bfloat16;
  const int workers = static_cast<int>(result.plan.workers.size());
  result.ranks = random.one_in(2) ? 1 : random.integer(2, workers);
  result.text = model.name + ", " + kind.name + " of " + std::to_string(kind.stages) + " stages, " +
                std::to_string(replicas) + " replicas, " + std::string(name_of(spec.optimizer)) + ", " +
                std::to_string(result.ranks) + " ranks, seed " + std::to_string(options.seed);
  return result;
}

pp::test::Run train(const plan::Plan& plan, const run::RunOptions& options, int ranks) {
  return ranks == 1 ? pp::test::run_plan(plan, options) : pp::test::run_on(ranks, plan, options);
}

// Two steps of one plan, then to the end on another one.
pp::test::Run train_in_two(const plan::Plan& first, const plan::Plan& second, run::RunOptions options,
                           int ranks) {
  const TestFolder folder;
  const std::int64_t steps = *options.steps;
  options.checkpoint = folder.path() / "first";
  options.steps = 2;
  train(first, options, ranks);
  options.resume = std::exchange(options.checkpoint, std::filesystem::path());
  options.steps = steps;
  return train(second, options, ranks);
}

std::vector<double> last_losses(const pp::test::Run& run) {
  return {run.report.step_losses.end() - 2, run.report.step_losses.end()};
}

std::vector<std::string> names_in(const std::filesystem::path& file) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : run::read_weights(file)) names.push_back(name);
  return names;
}

}  // namespace

TEST_SUITE("librun/sharded") {
  TEST_CASE("drawn plans: the bits of replicas that hold all of the state") {
    int cut = 0, spread_ranks = 0, limited = 0;
    Random random(48);
    for (const ModelGraph& model : models()) {
      for (const int replicas : {2, 3, 4}) {
        for (int i = 0; i < 5; ++i) {
          const Draw one = draw(random, model, replicas);
          CAPTURE(one.text);
          const pp::test::Run whole = train(unsharded(one.plan), one.options, 1);
          const pp::test::Run divided = train(one.plan, one.options, one.ranks);
          CHECK(pp::test::first_difference(whole.tensors, divided.tensors) == "");
          CHECK(whole.report.step_losses == divided.report.step_losses);
          spread_ranks += one.ranks > 1;
          limited += one.options.clip_norm.has_value();
          Bytes state, there;
          for (const run::WorkerReport& worker : whole.report.workers) state += worker.optimizer;
          for (const run::WorkerReport& worker : divided.report.workers) there += worker.optimizer;
          cut += there < state;
        }
      }
    }
    CHECK(spread_ranks > 20);
    CHECK(limited > 20);
    CHECK(cut > 60);  // of 90; sgd without momentum has no state
  }

  // Numbers of replicas change the order of sums, so a training on one plan is compared with the same one whose
  // replicas hold all of the state.
  TEST_CASE("a training goes on with the state divided, on other replicas, or whole, with the same bits") {
    Random random(7);
    const std::vector<ModelGraph> all = models();
    for (int i = 0; i < 24; ++i) {
      const ModelGraph& model = all[static_cast<std::size_t>(i) % all.size()];
      Draw one = draw(random, model, 2 + i % 3);
      Draw other = draw(random, model, 2 + (i + 1) % 3);
      other.plan.training.dtype = one.plan.training.dtype;
      other.plan.training.optimizer = one.plan.training.optimizer;
      other.plan.training.memory_format = one.plan.training.memory_format;
      CAPTURE(one.text);
      CAPTURE(other.text);
      const pp::test::Run whole = train_in_two(unsharded(one.plan), unsharded(other.plan), one.options, 1);
      const int ranks = std::min({one.ranks, other.ranks, static_cast<int>(one.plan.workers.size()),
                                  static_cast<int>(other.plan.workers.size())});
      for (const auto& [first, second] : {std::pair{one.plan, other.plan},
                                          {one.plan, unsharded(other.plan)},
                                          {unsharded(one.plan), other.plan}}) {
        const pp::test::Run divided = train_in_two(first, second, one.options, ranks);
        CHECK(pp::test::first_difference(whole.tensors, divided.tensors) == "");
        CHECK(last_losses(whole) == last_losses(divided));
      }
    }
  }

  // skip_mlp(64) in two parts (stage/shards_test.cpp): fc1.weight is cut behind 32 of its 64 rows.
  TEST_CASE("each owner writes its rows, names once") {
    const plan::Plan plan = make_plan({.model = pp::test::skip_mlp(64),
                                       .replicas = {2},
                                       .schedule = "data-parallel",
                                       .optimizer = plan::OptimizerName::adam,
                                       .shard = plan::Shard::optimizer});
    const TestFolder folder;
    run::RunOptions options;
    options.data = "synthetic";
    options.synthetic_samples = 16;
    options.steps = 2;
    options.checkpoint = folder.path() / "ck";
    for (const int ranks : {1, 2}) {
      pp::test::run_on(ranks, plan, options);
      std::vector<std::string> names;
      for (const auto& entry : std::filesystem::directory_iterator(options.checkpoint / "step-2")) {
        if (entry.path().filename().string().starts_with("optimizer"))
          std::ranges::copy(names_in(entry.path()), std::back_inserter(names));
      }
      std::ranges::sort(names);
      std::vector<std::string> expected;
      for (const std::string parameter : {"fc0.bias", "fc0.weight", "fc1.bias", "head.bias", "head.weight"}) {
        for (const std::string slot : {".exp_avg", ".exp_avg_sq", ".step"})
          expected.push_back(parameter + slot);
      }
      for (const std::string name :
           {"fc1.weight.exp_avg[0:32]", "fc1.weight.exp_avg[32:64]", "fc1.weight.exp_avg_sq[0:32]",
            "fc1.weight.exp_avg_sq[32:64]", "fc1.weight.step"})
        expected.push_back(name);
      std::ranges::sort(expected);
      CHECK(names == expected);
      std::filesystem::remove_all(options.checkpoint);
    }
  }

  // One stage of q replicas sends gradients and weights alone. Elements with their places of 16: skip_mlp(64)
  // has 4752 (stage/shards_test.cpp), of which the parts leave out 13 behind the last bias: 4739 floats. Each
  // goes from q-1 replicas to its owner and back to them: 2(q-1)/q of G = W on each, (q-1)(G + W) in all, a
  // step.
  TEST_CASE("bytes between ranks are (q-1)(G + W) a step, as of whole sums") {
    for (const int replicas : {2, 3, 4}) {
      const plan::Plan plan = make_plan({.model = pp::test::skip_mlp(64),
                                         .replicas = {replicas},
                                         .schedule = "data-parallel",
                                         .mini_batch = 12,
                                         .micro_batches = 4,
                                         .optimizer = plan::OptimizerName::adam,
                                         .shard = plan::Shard::optimizer});
      run::RunOptions options;
      options.data = "synthetic";
      options.synthetic_samples = 36;
      options.steps = 3;
      options.evaluate = false;
      pp::test::Wires wires(replicas);
      pp::test::train(replicas, plan, options, {}, &wires);
      CHECK(wires.sent() == 3U * static_cast<std::size_t>(replicas - 1) * 2 * 4739 * sizeof(float));
    }
  }

  TEST_CASE("the peak of a worker is what the plan promises, within 2 %, and below that of whole states") {
    profile::prepare_process();
    pp::test::SilentProfiling silent;
    const ModelGraph model = model::build_family("mlp:width=1024,layers=4");
    const Profile profile = profile::profile_model(
        model, {.micro_batch_sizes = {4}, .precision = 0.5, .budget_per_size = Seconds(0.01)}, silent);
    for (const int replicas : {2, 3, 4}) {
      std::int64_t whole = 0;
      for (const plan::ShardChoice shard : {plan::ShardChoice::none, plan::ShardChoice::optimizer}) {
        CAPTURE(replicas);
        plan::PlanRequest request;
        request.mini_batch = 4 * replicas;
        request.micro_batches = replicas;
        request.schedule = "data-parallel";
        request.optimizer = plan::OptimizerName::adam;
        request.shard = shard;
        request.replicas = std::vector<int>{replicas};
        const Cluster cluster =
            flat_cluster(replicas, DeviceKind::cpu, BytesPerSecond(1e9), Seconds(1e-5), Bytes(0));
        const plan::Plan plan = std::get<plan::Plan>(plan::find_plan(profile, cluster, request));
        run::RunOptions options;
        options.data = "synthetic";
        options.synthetic_samples = 8 * replicas;
        options.steps = 2;
        options.evaluate = false;
        pp::test::SilentObserver observer;
        const run::RunReport report = test::run_checked(plan, options, observer);
        for (std::size_t w = 0; w < report.workers.size(); ++w) {
          const auto promised = static_cast<double>(plan.predicted.workers[w].memory.peak.value);
          const std::int64_t measured = report.workers[w].peak.value;
          CHECK(static_cast<double>(measured) == doctest::Approx(promised).epsilon(0.02));
          if (shard == plan::ShardChoice::none) {
            whole = measured;
          } else {
            CHECK(measured < whole);
          }
        }
      }
    }
  }
}

}  // namespace sharded_test

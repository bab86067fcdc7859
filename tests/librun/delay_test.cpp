#include <array>
#include <cmath>
#include <map>
#include <mutex>

#include "libprofile/core/file.h"
#include "libprofile/model/parameters.h"
#include "librun/data/synthetic.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace delay_test {

using namespace pp;

namespace {

run::RunOptions two_epochs() {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 48;  // 12 mini-batches of 4 in each epoch
  options.epochs = 2;
  options.learning_rate = 0.1;
  options.optimizer["momentum"] = 0.9;
  options.evaluate = false;
  return options;
}

PlanSpec streamed(int layers, std::vector<int> cuts) {
  return {.model = test::mlp(layers),
          .cuts = std::move(cuts),
          .schedule = "pipedream",
          .mini_batch = 4,
          .micro_batches = 1,
          .dtype = DType::float64};
}

/// A trained number and the direction of its optimizer's state, after each update.
struct Number {
  std::vector<double> w, d{0};
  double mean = 0, square = 0;  // Adam's

  double adam(double gradient) {
    const auto t = static_cast<double>(d.size());
    mean = 0.9 * mean + 0.1 * gradient;
    square = 0.999 * square + 0.001 * gradient * gradient;
    return mean / (1 - std::pow(0.9, t)) / (std::sqrt(square / (1 - std::pow(0.999, t))) + 1e-8);
  }
  void move(double direction, double rate) {
    d.push_back(direction);
    w.push_back(w.back() - rate * direction);
  }
};

/// Two epochs of test::product(), one layer and weight a stage, y = c (b (a x)), loss (y - t)^2, T samples and
/// micro-batches a mini-batch, under weight prediction, by hand. Stage k of N = 3 has seen max(0, Tt - (2-k)) /
/// T updates, rounded down, at the first forward of mini-batch t, whose prediction the others share, and t at
/// its backwards. It runs on w - s lr d, d the optimizer's direction: s = floor(k/2) + N-k-1 = 2, 1, 1 forward
/// and floor(k/2) = 0, 0, 1 backward, over T and rounded up.
std::array<Number, 3> predicted_by_hand(const plan::Plan& plan, const run::RunOptions& options) {
  const auto per_update = static_cast<std::size_t>(plan.training.micro_batches);
  const bool adam = plan.training.optimizer == OptimizerName::adam;
  const double rate = options.learning_rate;
  const ResolvedModel model = resolve(plan.model);
  const run::MemoryDataset data = run::make_synthetic(model, options.synthetic_samples, options.seed,
                                                      run::Subset::training, DType::float64);
  const auto shifted = [&](int updates) {
    return static_cast<double>((updates + static_cast<int>(per_update) - 1) / static_cast<int>(per_update));
  };
  constexpr std::array kForward{2, 1, 1}, kBackward{0, 0, 1};
  std::array<Number, 3> numbers;
  for (std::size_t k = 0; k < 3; ++k) {
    numbers[k].w = {
        model::initial_parameter(model, static_cast<int>(k), 0, options.seed, DType::float64).item<double>()};
  }
  const std::size_t mini_batches = static_cast<std::size_t>(options.synthetic_samples) / per_update;
  for (int epoch = 0; epoch < 2; ++epoch) {
    const std::size_t begin = numbers[0].w.size() - 1;  // the pipeline fills again
    for (std::size_t t = 0; t < mini_batches; ++t) {
      std::array<double, 3> f{}, b{}, sum{};
      for (std::size_t k = 0; k < 3; ++k) {
        const auto& [w, d, mean, square] = numbers[k];
        const std::size_t first = per_update * t;
        const std::size_t seen = begin + (first < 2 - k ? 0 : (first - (2 - k)) / per_update);
        f[k] = w[seen] - shifted(kForward[k]) * rate * d[seen];
        b[k] = w.back() - shifted(kBackward[k]) * rate * d.back();
      }
      for (std::size_t m = 0; m < per_update; ++m) {
        const auto row = static_cast<std::int64_t>(per_update * t + m);
        const double x = data.inputs[0].values[row].item<double>(),
                     y = data.targets[0].values[row].item<double>();
        const double h0 = f[0] * x, h1 = f[1] * h0, dy = 2 * (f[2] * h1 - y) / static_cast<double>(per_update);
        sum[0] += dy * b[2] * b[1] * x;
        sum[1] += dy * b[2] * h0;
        sum[2] += dy * h1;
      }
      for (std::size_t k = 0; k < 3; ++k)
        numbers[k].move(adam ? numbers[k].adam(sum[k]) : 0.8 * numbers[k].d.back() + sum[k], rate);
    }
  }
  return numbers;
}

/// Four stages, windows 4, 3, 2 and 1, under a weight policy against its recursion: every bit, over two epochs.
void check_recursion(plan::WeightPolicy policy, int micro_batches, const std::vector<int>& versions) {
  PlanSpec spec = streamed(4, {2, 4, 6});
  spec.mini_batch = 4;
  spec.micro_batches = micro_batches;
  spec.policy = policy;
  run::RunOptions options = two_epochs();
  options.synthetic_samples = 50;         // 13 mini-batches of 4, the last one has 2 ...
  options.drop_last = micro_batches > 1;  // ... which four micro-batches cannot share
  for (const auto optimizer : {OptimizerName::sgd, OptimizerName::adamw}) {
    spec.optimizer = optimizer;
    const bool sgd = optimizer == OptimizerName::sgd;
    options.learning_rate = sgd ? 0.1 : 0.01;
    options.optimizer["momentum"] = sgd ? std::optional(0.9) : std::nullopt;
    const plan::Plan plan = make_plan(spec);
    const test::Trained expected = test::train_versions(plan, options);
    const test::Run found = test::run_plan(plan, options);
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    CHECK(found.report.step_losses == expected.losses);
    REQUIRE(expected.losses.size() >= 24);
    for (std::size_t s = 0; s < 4; ++s) {
      CAPTURE(s);
      CHECK(found.report.workers[s].peak_versions == versions[s]);
      CHECK(found.report.workers[s].peak_in_flight == 4 - static_cast<int>(s));
    }
  }
}

}  // namespace

TEST_SUITE("librun/delay") {
  TEST_CASE(
      "row 16: 1F1B-RR, replicas 2-1 and 3-1: backwards where their forwards were, means over the rounds") {
    for (const int front : {2, 3}) {
      CAPTURE(front);
      PlanSpec spec = streamed(2, {2});
      spec.replicas = {front, 1};
      const plan::Plan plan = make_plan(spec);
      run::RunOptions options = two_epochs();
      options.epochs = 1;
      std::mutex mutex;
      std::map<std::pair<plan::OpKind, std::int64_t>, WorkerId> where;  // stage 0's, by mini-batch
      options.before_op = [&](std::int64_t step, WorkerId worker, const plan::Op& op) {
        const std::lock_guard held(mutex);
        if (op.stage == StageId{0}) where[{op.kind, step}] = worker;
      };
      const test::Trained expected = test::train_stream(plan, options);
      const test::Run found = test::run_plan(plan, options);
      CHECK(test::largest_difference(expected.tensors, found.tensors) < 1e-13);
      CHECK(found.report.step_losses == expected.losses);
      for (int j = 0; j < 12; ++j) {
        CHECK(where.at({plan::OpKind::forward, j}) == WorkerId{j % front});
        CHECK(where.at({plan::OpKind::backward, j}) == WorkerId{j % front});
      }
      // NOAM: ceil(3/2) and ceil(4/3).
      for (int replica = 0; replica < front; ++replica)
        CHECK(found.report.workers[static_cast<std::size_t>(replica)].peak_in_flight == 2);
    }
  }

  TEST_CASE("a partial last mini-batch in a round of replicas counts with its samples") {
    // 46 samples: 12 mini-batches, the last one of 2. With replicas 2-1 stage 0 weighs its last round 4:2.
    PlanSpec spec = streamed(2, {2});
    spec.replicas = {2, 1};
    run::RunOptions options = two_epochs();
    options.synthetic_samples = 46;
    options.epochs = 1;
    const test::Trained expected = test::train_stream(make_plan(spec), options);
    const test::Run found = test::run_plan(make_plan(spec), options);
    CHECK(test::largest_difference(expected.tensors, found.tensors) < 1e-13);
    CHECK(found.report.step_losses == expected.losses);
  }

  TEST_CASE("one round of two replicas, 4 and 2 samples, is one step on the six samples together") {
    PlanSpec spec = streamed(2, {});
    spec.replicas = {2};
    run::RunOptions options = two_epochs();
    options.synthetic_samples = 6;
    options.epochs = 1;
    options.shuffle = false;
    const test::Run found = test::run_plan(make_plan(spec), options);
    spec.replicas = {};
    spec.schedule = "gpipe";
    spec.mini_batch = 6;
    const test::Trained expected = test::train_alone(make_plan(spec), options);
    CHECK(test::largest_difference(expected.tensors, found.tensors) < 1e-12);  // float64
  }

  TEST_CASE("an interrupted stream applies every gradient that it has computed, wherever W and I stand") {
    // One stage whose body computes the weight gradient of one mini-batch before the input gradient of the
    // next.
    plan::Plan plan = make_plan(streamed(2, {}));
    plan.workers[0].program.stream =
        plan::Stream{plan::parse_program("F0.0 I0.0"), plan::parse_program("F0.1 W0.0 I0.1 U0"), /*period=*/1};
    const TestFolder folder;
    run::RunOptions options = two_epochs();
    options.save_weights = folder.path() / "w.safetensors";
    test::SilentObserver observer;
    const run::RunReport report =
        test::run_checked(plan, options, observer, [&] { return observer.steps.size() >= 3; });
    CHECK(report.exit_reason == "interrupted");
    REQUIRE(report.steps < 12);
    const auto interrupted = read_file(options.save_weights);
    options.epochs.reset();
    options.steps = report.steps;
    test::run_checked(plan, options, observer);
    CHECK(read_file(options.save_weights) == interrupted);
  }

  TEST_CASE("one stage is plain sgd") {
    PlanSpec spec = streamed(2, {});
    const test::Run streamed_run = test::run_plan(make_plan(spec), two_epochs());
    spec.schedule = "gpipe";
    const test::Run plain = test::run_plan(make_plan(spec), two_epochs());
    CHECK(test::first_difference(plain.tensors, streamed_run.tensors) == "");
  }

  TEST_CASE(
      "row 15: vertical sync equals the uniform delay of K-1 bit for bit, with K versions on every stage") {
    check_recursion(plan::WeightPolicy::vertical_sync, 1, {4, 4, 4, 4});
  }
  TEST_CASE("row 17: 2BW equals the delay of one update bit for bit, with two versions") {
    check_recursion(plan::WeightPolicy::two_buffered, 4, {2, 2, 2, 2});
  }
  TEST_CASE("row 17: macrobatch takes the newest weights at the forward and has at most two versions") {
    check_recursion(plan::WeightPolicy::macrobatch, 4, {2, 2, 2, 1});
  }
  TEST_CASE(
      "row 14: weight stashing equals the delay recursion bit for bit; stage s of four has 4-s versions") {
    check_recursion(plan::WeightPolicy::stash, 1, {4, 3, 2, 1});
  }
  TEST_CASE("prediction equals its recursion with momentum and Adam") {
    check_recursion(plan::WeightPolicy::predict, 1, {2, 2, 2, 2});
  }

  TEST_CASE("2BW: unequal micro-batches count with their samples, a partial last mini-batch too") {
    PlanSpec spec = streamed(4, {2, 4});
    spec.policy = plan::WeightPolicy::two_buffered;
    spec.mini_batch = 7;  // in 3: 3, 2, 2
    spec.micro_batches = 3;
    run::RunOptions options = two_epochs();  // 48 = 6 * 7 + 6
    const test::Trained expected = test::train_versions(make_plan(spec), options);
    const test::Run found = test::run_plan(make_plan(spec), options);
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    CHECK(found.report.step_losses == expected.losses);
    CHECK(expected.losses.size() == 14);
  }

  TEST_CASE("rows 22, 23: SpecTrain's and XPipe's recursions by hand, with momentum and Adam") {
    for (const auto& [schedule, micro_batches, optimizer] : {std::tuple{"spectrain", 1, OptimizerName::sgd},
                                                             {"xpipe", 2, OptimizerName::sgd},
                                                             {"xpipe", 2, OptimizerName::adam}}) {
      CAPTURE(schedule);
      PlanSpec spec{.model = test::product(),
                    .cuts = {1, 2},
                    .schedule = schedule,
                    .mini_batch = micro_batches,
                    .micro_batches = micro_batches,
                    .dtype = DType::float64,
                    .optimizer = optimizer};
      run::RunOptions options = two_epochs();
      options.synthetic_samples = 24 * micro_batches;
      options.learning_rate = 0.02;
      options.optimizer["momentum"] = optimizer == OptimizerName::adam ? std::nullopt : std::optional(0.8);
      options.shuffle = false;
      const plan::Plan plan = make_plan(spec);
      const std::array<Number, 3> expected = predicted_by_hand(plan, options);
      const test::Run found = test::run_plan(plan, options);
      REQUIRE(found.tensors.size() == 3);
      for (std::size_t k = 0; k < 3; ++k)
        CHECK(found.tensors[k].second.item<double>() == doctest::Approx(expected[k].w.back()).epsilon(1e-12));
      for (const run::WorkerReport& worker : found.report.workers)
        CHECK(worker.peak_versions == (micro_batches == 1 ? 2 : 3));
      if (micro_batches > 1) continue;
      // Without prediction the first loss is the same, later ones are not.
      spec.schedule = "pipedream";
      spec.policy = plan::WeightPolicy::latest;
      const std::vector<double> losses = test::run_plan(make_plan(spec), options).report.step_losses;
      REQUIRE(losses.size() == found.report.step_losses.size());
      CHECK(losses.front() == found.report.step_losses.front());
      CHECK(losses.back() != found.report.step_losses.back());
    }
  }

  TEST_CASE("predict: XPipe's recursion bit for bit, Adam too, with more stages than micro-batches or fewer") {
    for (const int micro_batches : {1, 2, 3, 6}) {
      CAPTURE(micro_batches);
      PlanSpec spec = streamed(4, {2, 4, 6});
      spec.schedule = "xpipe";
      spec.mini_batch = spec.micro_batches = micro_batches;
      for (const auto optimizer : {OptimizerName::sgd, OptimizerName::adamw}) {
        spec.optimizer = optimizer;
        run::RunOptions options = two_epochs();
        options.synthetic_samples = 20 * micro_batches;
        if (optimizer != OptimizerName::sgd)
          options.optimizer["momentum"].reset(), options.learning_rate = 0.01;
        const plan::Plan plan = make_plan(spec);
        const test::Trained expected = test::train_versions(plan, options);
        const test::Run found = test::run_plan(plan, options);
        CHECK(test::first_difference(expected.tensors, found.tensors) == "");
        CHECK(found.report.step_losses == expected.losses);
        for (std::size_t s = 0; s < 4; ++s) {
          CHECK(found.report.workers[s].peak_versions == (micro_batches == 1 ? 2 : 3));
          CHECK(found.report.workers[s].peak_in_flight == 4 - static_cast<int>(s));
        }
      }
    }
  }

  TEST_CASE("predict: the last of two stages looks ahead by nothing and has one version") {
    PlanSpec spec = streamed(4, {4});
    spec.schedule = "spectrain";
    const plan::Plan plan = make_plan(spec);
    const test::Trained expected = test::train_versions(plan, two_epochs());
    const test::Run found = test::run_plan(plan, two_epochs());
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
    CHECK(found.report.workers[0].peak_versions == 2);
    CHECK(found.report.workers[1].peak_versions == 1);
  }

  TEST_CASE("latest: the forward's weights in the forward, newer ones in the backward") {
    // h = b (a x), y = c h, loss (y - t)^2; stage 0 has a and b, stage 1 has c; no bias, one sample a
    // mini-batch. Stage 0 runs one forward ahead, so its backward of j finds the weights after j updates, where
    // the forward of j (0 but for the first two) had those after j - 1.
    const plan::Plan plan = make_plan({.model = test::product(),
                                       .cuts = {2},
                                       .schedule = "pipedream",
                                       .mini_batch = 1,
                                       .micro_batches = 1,
                                       .dtype = DType::float64,
                                       .policy = plan::WeightPolicy::latest});
    run::RunOptions options;
    options.data = "synthetic";
    options.synthetic_samples = 24;
    options.epochs = 1;
    options.learning_rate = 0.05;
    options.optimizer["momentum"] = 0;
    options.shuffle = false;
    options.evaluate = false;
    const ResolvedModel model = resolve(plan.model);
    const run::MemoryDataset data =
        run::make_synthetic(model, 24, options.seed, run::Subset::training, DType::float64);
    const auto initial = [&](int layer) {
      return model::initial_parameter(model, layer, 0, options.seed, DType::float64).item<double>();
    };
    std::vector<double> a{initial(0)}, b{initial(1)}, c{initial(2)};
    for (std::size_t j = 0; j < 24; ++j) {
      const auto row = static_cast<std::int64_t>(j);
      const double x = data.inputs[0].values[row].item<double>(),
                   t = data.targets[0].values[row].item<double>();
      const std::size_t seen = j == 0 ? 0 : j - 1;  // updates of stage 0 before its forward of j
      const double inner = a[seen] * x, h = b[seen] * inner;
      const double dy = 2 * (c[j] * h - t), dh = dy * c[j];
      c.push_back(c[j] - 0.05 * dy * h);
      b.push_back(b[j] - 0.05 * dh * inner);
      a.push_back(a[j] - 0.05 * dh * b[j] * x);
    }
    const test::Run found = test::run_plan(plan, options);
    REQUIRE(found.tensors.size() == 3);
    CHECK(found.tensors[0].second.item<double>() == doctest::Approx(a.back()).epsilon(1e-12));
    CHECK(found.tensors[1].second.item<double>() == doctest::Approx(b.back()).epsilon(1e-12));
    CHECK(found.tensors[2].second.item<double>() == doctest::Approx(c.back()).epsilon(1e-12));
    for (const run::WorkerReport& worker : found.report.workers) CHECK(worker.peak_versions == 1);
    test::SilentObserver observer;
    test::run_checked(plan, options, observer);
    REQUIRE(observer.warnings.size() >= 1);
    CHECK(observer.warnings.back().starts_with("weight policy latest: "));
  }
}

}  // namespace delay_test

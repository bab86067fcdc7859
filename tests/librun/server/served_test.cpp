// Replicas around a parameter server against recursions by hand, in float64.
#include <chrono>
#include <functional>
#include <map>
#include <thread>

#include "librun/server/interleaving.h"
#include "tests/libprofile/core/error_text.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/whole_model.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

namespace served_test {

using namespace pp;
using test::LayerTensors;

namespace {

constexpr int kBatch = 4;

plan::Plan served_plan(const std::string& schedule, int replicas, DType dtype = DType::float64,
                       OptimizerName optimizer = OptimizerName::sgd) {
  return make_plan({.model = test::regression(),
                    .replicas = {replicas},
                    .schedule = schedule,
                    .mini_batch = kBatch,
                    .micro_batches = 1,
                    .dtype = dtype,
                    .optimizer = optimizer});
}

/// One epoch of `steps` mini-batches.
run::RunOptions short_run(int steps) {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = steps * kBatch;
  options.epochs = 1;
  options.learning_rate = 0.1;
  options.optimizer["momentum"] = 0;
  options.evaluate = false;
  return options;
}

// by += factor * of, by hand.
void add(LayerTensors& by, const LayerTensors& of, double factor) {
  for (std::size_t l = 0; l < by.size(); ++l) {
    for (std::size_t i = 0; i < by[l].size(); ++i) by[l][i] = by[l][i].add(of[l][i], factor);
  }
}

/// What the recursions share: gradients, and the order that a seed gives the replicas.
struct Recursion {
  Recursion(const plan::Plan& the_plan, const run::RunOptions& the_options)
      : plan(the_plan),
        options(the_options),
        model(plan, options),
        replicas(static_cast<int>(plan.workers.size())),
        order(run::epoch_order(model.samples(), options.seed, 0, true)),
        weights(model.initial_weights()) {}

  /// Of mini-batch `clock` of a replica: they take turns.
  LayerTensors gradient(int replica, int clock, const LayerTensors& at) {
    const auto first = static_cast<std::size_t>((clock * replicas + replica) * kBatch);
    return model.gradient(at, std::span(order).subspan(first, kBatch), 1, {}).weights;
  }
  LayerTensors zero() const {
    LayerTensors tensors = test::clone(weights);
    add(tensors, weights, -1);
    return tensors;
  }
  test::NamedTensors result() const { return model.named(weights, model.initial_buffers()); }

  /// begin(replica, clock, least clock) and finish(replica, clock) in the order of the seed.
  template <class Begin, class Finish>
  void play(run::Step bound, Begin&& begin, Finish&& finish) {
    const auto each = static_cast<int>(order.size()) / kBatch / replicas;
    run::ClockTable clocks(replicas, bound);
    run::Interleaving turns(*options.interleave, replicas);
    std::vector<bool> within(static_cast<std::size_t>(replicas));
    while (turns.turn() != run::Interleaving::kNobody) {
      const int r = turns.turn();
      const auto clock = static_cast<int>(clocks.of(r));
      if (!within[static_cast<std::size_t>(r)] && clock == each) {
        turns.leave(r, clocks);
        continue;
      }
      if (within[static_cast<std::size_t>(r)]) {
        finish(r, clock);
        clocks.tick(r);
      } else {
        begin(r, clock, static_cast<int>(clocks.least()));
      }
      within[static_cast<std::size_t>(r)].flip();
      turns.pass(clocks);
    }
  }

  const plan::Plan& plan;
  const run::RunOptions& options;
  test::WholeModel model;
  int replicas;
  std::vector<std::int64_t> order;
  LayerTensors weights;
};

// Dean et al. call them n_fetch and n_push; what is left at the end is pushed by replica.
test::NamedTensors downpour(const plan::Plan& plan, const run::RunOptions& options) {
  Recursion all(plan, options);
  const int fetch = options.fetch_every.value_or(1), push = options.push_every.value_or(1);
  const bool adagrad = plan.training.optimizer == OptimizerName::adagrad;
  std::vector<LayerTensors> local(static_cast<std::size_t>(all.replicas)), sum(local.size());
  for (LayerTensors& tensors : sum) tensors = all.zero();
  LayerTensors squares = all.zero();
  const auto apply = [&](LayerTensors& pushed) {
    if (adagrad) {
      for (std::size_t l = 0; l < squares.size(); ++l) {
        for (std::size_t i = 0; i < squares[l].size(); ++i) {
          squares[l][i] = squares[l][i].add(pushed[l][i].mul(pushed[l][i]));
          pushed[l][i] = pushed[l][i].div(squares[l][i].sqrt().add(1e-10));
        }
      }
    }
    add(all.weights, pushed, -options.learning_rate);
    pushed = all.zero();
  };
  all.play(
      64,
      [&](int r, int clock, int) {
        if (clock % fetch == 0) local[static_cast<std::size_t>(r)] = test::clone(all.weights);
      },
      [&](int r, int clock) {
        const auto place = static_cast<std::size_t>(r);
        const LayerTensors g = all.gradient(r, clock, local[place]);
        add(sum[place], g, 1);
        add(local[place], g, -options.learning_rate);
        if ((clock + 1) % push == 0) apply(sum[place]);
      });
  for (LayerTensors& left : sum) {
    double any = 0;
    for (const at::Tensor& tensor : test::flat(left)) any += tensor.abs().sum().item<double>();
    if (any > 0) apply(left);
  }
  return all.result();
}

// A read sees all updates of clocks that all replicas have finished, and its own.
test::NamedTensors stale(const plan::Plan& plan, const run::RunOptions& options) {
  Recursion all(plan, options);
  std::map<std::pair<int, int>, LayerTensors> updates;  // by clock and replica
  std::vector<LayerTensors> seen(static_cast<std::size_t>(all.replicas));
  const auto view = [&](int replica, int least) {
    LayerTensors weights = test::clone(all.weights);
    for (const auto& [key, gradient] : updates) {
      if (key.first < least || key.second == replica) add(weights, gradient, -options.learning_rate);
    }
    return weights;
  };
  all.play(
      *options.staleness, [&](int r, int, int least) { seen[static_cast<std::size_t>(r)] = view(r, least); },
      [&](int r, int clock) {
        updates[{clock, r}] = all.gradient(r, clock, seen[static_cast<std::size_t>(r)]);
      });
  all.weights = view(-1, 1'000'000);
  return all.result();
}

// Bulk synchronous: all compute on the same weights, then all of it is applied.
test::NamedTensors bulk(const plan::Plan& plan, const run::RunOptions& options) {
  Recursion all(plan, options);
  const auto clocks = static_cast<int>(all.order.size()) / kBatch / all.replicas;
  for (int clock = 0; clock < clocks; ++clock) {
    const LayerTensors at = test::clone(all.weights);
    for (int r = 0; r < all.replicas; ++r) add(all.weights, all.gradient(r, clock, at), -options.learning_rate);
  }
  return all.result();
}

std::string refusal(const plan::Plan& plan, const run::RunOptions& options) {
  return pp::test::error_of([&] { run::check(plan, options); });
}

std::string refusal(const plan::Plan& plan, const std::function<void(run::RunOptions&)>& change) {
  run::RunOptions options = short_run(8);
  change(options);
  return refusal(plan, options);
}

}  // namespace

TEST_SUITE("librun/server/served") {
  TEST_CASE("row 3: the synchronous parameter server equals data parallelism, bit for bit") {
    for (const auto optimizer : {OptimizerName::sgd, OptimizerName::adam}) {
      for (const int micro_batches : {4, 3, 1}) {  // 3 and 1: some replica of 4 has nothing to do
        const auto train = [&](const char* schedule) {
          run::RunOptions options = short_run(12);
          options.epochs = 2;
          options.optimizer["momentum"].reset();
          options.clip_norm.reset();
          return test::run_plan(make_plan({.model = test::dropout_mlp(),
                                           .replicas = {micro_batches == 4 ? 2 : 4},
                                           .schedule = schedule,
                                           .mini_batch = kBatch,
                                           .micro_batches = micro_batches,
                                           .optimizer = optimizer}),
                                options);
        };
        const test::Run found = train("parameter-server"), expected = train("data-parallel");
        CHECK(test::first_difference(expected.tensors, found.tensors) == "");
        CHECK(found.report.step_losses == expected.report.step_losses);
      }
    }
  }

  TEST_CASE("rows 26, 27: with one replica every server is SGD, bit for bit") {
    const run::RunOptions options = short_run(10);
    for (const char* schedule : {"downpour", "hogwild", "ssp", "parameter-server"}) {
      CAPTURE(schedule);
      const plan::Plan plan = served_plan(schedule, 1, DType::float32);
      const test::Trained expected = test::train_alone(plan, options);
      const test::Run found = test::run_plan(plan, options);
      CHECK(test::first_difference(expected.tensors, found.tensors) == "");
      CHECK(found.report.step_losses == expected.losses);
    }
  }

  TEST_CASE("row 26: Downpour, two replicas in a fixed order equal the recursion") {
    for (const std::uint64_t seed : {1u, 2u, 3u}) {
      for (const auto& periods : {std::pair{1, 1}, std::pair{3, 2}, std::pair{1, 4}, std::pair{5, 1}}) {
        CAPTURE(periods.first);
        CAPTURE(periods.second);
        const plan::Plan plan = served_plan("downpour", 2);
        run::RunOptions options = short_run(22);
        options.interleave = seed;
        options.fetch_every = periods.first;
        options.push_every = periods.second;
        const test::Run found = test::run_plan(plan, options);
        CHECK(test::largest_difference(downpour(plan, options), found.tensors) < 1e-13);
        REQUIRE(found.report.replicas.has_value());
        CHECK(found.report.replicas->largest_staleness > 0);
      }
    }
  }

  TEST_CASE("downpour with adagrad at the server") {
    const plan::Plan plan = served_plan("downpour", 3, DType::float64, OptimizerName::adagrad);
    run::RunOptions options = short_run(18);
    options.optimizer["momentum"].reset();
    options.interleave = 5;
    options.push_every = 2;
    CHECK(test::largest_difference(downpour(plan, options), test::run_plan(plan, options).tensors) < 1e-13);
  }

  TEST_CASE(
      "row 28: SSP, three replicas in a fixed order equal the recursion; nobody is further ahead than the "
      "bound") {
    for (const std::uint64_t seed : {1u, 2u}) {
      for (const int staleness : {0, 1, 3}) {
        CAPTURE(staleness);
        const plan::Plan plan = served_plan("ssp", 3);
        run::RunOptions options = short_run(30);
        options.interleave = seed;
        options.staleness = staleness;
        const test::Run found = test::run_plan(plan, options);
        CHECK(test::largest_difference(stale(plan, options), found.tensors) < 1e-13);
        CHECK(found.report.replicas->largest_lead <= staleness);
        if (staleness == 1) CHECK(found.report.replicas->largest_lead == 1);
      }
    }
  }

  TEST_CASE("row 28: SSP with staleness 0 is bulk synchronous, in any order") {
    const plan::Plan plan = served_plan("ssp", 3);
    run::RunOptions options = short_run(24);
    options.staleness = 0;
    const test::Run found = test::run_plan(plan, options);
    CHECK(test::largest_difference(bulk(plan, options), found.tensors) < 1e-13);
    CHECK(found.report.replicas->largest_lead == 0);
    options.interleave = 3;
    CHECK(test::first_difference(found.tensors, test::run_plan(plan, options).tensors) == "");
  }

  TEST_CASE("ssp without a fixed order keeps the bound, too, when one replica is slow") {
    const plan::Plan plan = served_plan("ssp", 2);
    run::RunOptions options = short_run(24);
    options.staleness = 2;
    options.before_op = [](std::int64_t, WorkerId worker, const plan::Op&) {
      if (number(worker) == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    CHECK(test::run_plan(plan, options).report.replicas->largest_lead == 2);
  }

  TEST_CASE("row 27: Hogwild, and Downpour, without a fixed order: the loss of four replicas falls") {
    for (const char* schedule : {"hogwild", "downpour"}) {
      plan::Plan plan = make_plan({.model = test::mlp(1),
                                   .replicas = {4},
                                   .schedule = schedule,
                                   .mini_batch = kBatch,
                                   .micro_batches = 1});
      run::RunOptions options = short_run(64);
      options.epochs = 6;
      const run::RunReport report = test::run_plan(plan, options).report;
      CHECK(report.epochs.back().train_loss < 0.5 * report.epochs.front().train_loss);
      CHECK(report.replicas.has_value());
    }
  }

  TEST_CASE("hogwild in a fixed order: replicas compute on what they read, others write meanwhile") {
    // A store that applies at once: what downpour is with plain gradient descent.
    const auto train = [](const char* schedule) {
      run::RunOptions options = short_run(16);
      options.interleave = 9;
      return test::run_plan(served_plan(schedule, 2, DType::float32), options).tensors;
    };
    CHECK(test::first_difference(train("downpour"), train("hogwild")) == "");
  }

  TEST_CASE("a resumed run in a fixed order equals the uninterrupted one with the same checkpoints") {
    const plan::Plan plan = served_plan("downpour", 2, DType::float32, OptimizerName::adagrad);
    run::RunOptions options = short_run(12);
    options.epochs.reset();
    options.optimizer["momentum"].reset();
    options.interleave = 4;
    options.checkpoint_steps = 6;
    const TestFolder folder;
    run::RunOptions whole = options;
    whole.steps = 18;
    whole.checkpoint = folder.path() / "whole";
    const test::Run expected = test::run_plan(plan, whole);
    const test::Run found = test::run_parts({{plan, 6}, {plan, 18}}, options);
    CHECK(test::first_difference(expected.tensors, found.tensors) == "");
  }

  TEST_CASE("what does not go with a parameter server is refused") {
    const plan::Plan downpour = served_plan("downpour", 2), ssp = served_plan("ssp", 2);
    CHECK(refusal(downpour, short_run(8)) == "");
    CHECK(refusal(downpour, short_run(9)) ==
          "schedule downpour: 9 mini-batches are not a multiple of the 2 replicas of stage 0; use 8 or 10, or "
          "--drop-last");
    CHECK(refusal(ssp, [](auto& o) { o.optimizer["momentum"].reset(); }) ==
          "schedule ssp: updates are plain gradient descent, without momentum; give --momentum 0");
    CHECK(refusal(ssp, [](auto& o) { o.push_every = 2; }) ==
          "--push-every: schedule ssp does not read it; leave it out, or plan with downpour");
    CHECK(refusal(downpour, [](auto& o) { o.staleness = 2; }) ==
          "--staleness: schedule downpour does not read it; leave it out, or plan with ssp");
    CHECK(refusal(make_plan({.model = test::regression()}), [](auto& o) { o.interleave = 2; }) ==
          "--interleave: schedule 1f1b does not read it; leave it out, or plan with parameter-server, "
          "downpour, ssp or hogwild");
    CHECK(refusal(ssp, [](auto& o) { o.staleness = 1001; }) == "staleness = 1001: must be 0 to 1000");
    CHECK(refusal(served_plan("parameter-server", 2), [](auto& o) { o.clip_norm = 1; }) ==
          "--clip-norm: under schedule parameter-server no replica sees the whole gradient before the update; "
          "plan "
          "with data-parallel");
    CHECK(refusal(served_plan("downpour", 2, DType::float32, OptimizerName::adam),
                  [](auto& o) { o.optimizer["momentum"].reset(); }) ==
          "schedule downpour: its server runs sgd or adagrad, the plan's optimizer is adam; plan with "
          "--optimizer "
          "sgd or adagrad");
    CHECK(refusal(served_plan("hogwild", 2, DType::float32, OptimizerName::adagrad),
                  [](auto& o) { o.optimizer["momentum"].reset(); }) ==
          "schedule hogwild: updates are plain gradient descent, the plan's optimizer is adagrad; plan with "
          "--optimizer sgd");
    CHECK(
        refusal(
            make_plan(
                {.model = test::residual_net(), .replicas = {2}, .schedule = "hogwild", .micro_batches = 1}),
            short_run(8)) ==
        "layer \"bn0\": batch norm: its running statistics would be each replica's own under schedule hogwild; "
        "plan with data-parallel, or use layer_norm or group_norm");
  }
}

}  // namespace served_test

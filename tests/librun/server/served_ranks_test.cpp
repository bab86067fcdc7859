// Replicas around a parameter server on several ranks, which are threads here: what they equal in one process,
// which served_test.cpp holds against recursions by hand.
#include <ATen/ops/ones.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "librun/server/remote_server.h"
#include "tests/librun/folder.h"
#include "tests/librun/models.h"
#include "tests/librun/rank_training.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/thread_peers.h"
#include "tests/support/torch_test.h"

namespace served_ranks_test {

using namespace pp;
using pp::test::Ending;
using pp::test::run_on;
using pp::test::ThreadPeers;
using pp::test::train;
using pp::test::Wires;

namespace {

constexpr int kBatch = 4;
constexpr std::int64_t kVector = 544 * sizeof(float);  // of mlp(8): librun/ranks counts it
constexpr std::int64_t kHead = 64;

plan::Plan served_plan(const std::string& schedule, int replicas,
                       OptimizerName optimizer = OptimizerName::sgd) {
  return make_plan({.model = pp::test::mlp(8),
                    .replicas = {replicas},
                    .schedule = schedule,
                    .mini_batch = kBatch,
                    .micro_batches = 1,
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

void check_same(int ranks, const plan::Plan& plan, const run::RunOptions& options) {
  const pp::test::Run expected = pp::test::run_plan(plan, options), found = run_on(ranks, plan, options);
  CHECK(pp::test::first_difference(expected.tensors, found.tensors) == "");
  CHECK(found.report.step_losses == expected.report.step_losses);
  CHECK(found.report.replicas == expected.report.replicas);
}

}  // namespace

TEST_SUITE("librun/server/ranks") {
  TEST_CASE("downpour in a fixed order on several ranks: the bits and the staleness of one process") {
    for (const std::uint64_t seed : {1u, 2u}) {
      for (const auto& periods : {std::pair{1, 1}, std::pair{3, 2}, std::pair{1, 4}, std::pair{5, 1}}) {
        CAPTURE(periods.first);
        CAPTURE(periods.second);
        run::RunOptions options = short_run(24);
        options.interleave = seed;
        options.fetch_every = periods.first;
        options.push_every = periods.second;
        check_same(2, served_plan("downpour", 2), options);
        if (seed == 1) check_same(3, served_plan("downpour", 4), options);
      }
    }
    run::RunOptions options = short_run(18);
    options.optimizer["momentum"].reset();
    options.interleave = 5;
    check_same(3, served_plan("downpour", 3, OptimizerName::adagrad), options);
  }

  TEST_CASE("the server stands on the rank of the first replica, wherever the plan puts it") {
    plan::Plan plan = served_plan("downpour", 3);
    for (std::size_t w = 0; w < 3; ++w) plan.workers[w].rank = w == 1 ? 0 : 1;
    run::RunOptions options = short_run(18);
    options.interleave = 3;
    check_same(2, plan, options);
  }

  TEST_CASE("ssp on three ranks: the bits of one process in a fixed order, the bound in any order") {
    for (const int staleness : {0, 1, 3}) {
      CAPTURE(staleness);
      run::RunOptions options = short_run(30);
      options.interleave = 2;
      options.staleness = staleness;
      check_same(3, served_plan("ssp", 3), options);
      options.interleave.reset();
      options.before_op = [](std::int64_t, WorkerId worker, const plan::Op&) {
        if (number(worker) == 1) std::this_thread::sleep_for(std::chrono::milliseconds(3));
      };
      CHECK(run_on(3, served_plan("ssp", 3), options).report.replicas->largest_lead == staleness);
    }
  }

  TEST_CASE("downpour in free order: the loss of four replicas on four ranks falls, nobody is far ahead") {
    run::RunOptions options = short_run(64);
    options.epochs = 6;
    const plan::Plan plan = make_plan({.model = pp::test::mlp(1),
                                       .replicas = {4},
                                       .schedule = "downpour",
                                       .mini_batch = kBatch,
                                       .micro_batches = 1});
    options.before_op = [](std::int64_t, WorkerId worker, const plan::Op&) {
      if (number(worker) == 3) std::this_thread::sleep_for(std::chrono::microseconds(500));
    };
    const run::RunReport report = run_on(4, plan, options).report;
    CHECK(report.epochs.back().train_loss < 0.5 * report.epochs.front().train_loss);
    CHECK(report.replicas->largest_lead <= 8);
  }

  // Two replicas with four mini-batches each; each fetches once more at the end. One of them is on another
  // rank: its requests are 4 begins, 4 ends, a leave and a close.
  TEST_CASE("what is pushed and fetched is counted, and crosses the ranks as often") {
    const plan::Plan plan = served_plan("downpour", 2);
    for (const int every : {1, 2}) {
      CAPTURE(every);
      run::RunOptions options = short_run(8);
      options.push_every = options.fetch_every = every;
      Wires wires(2);
      const std::vector<Ending> endings = train(2, plan, options, {}, &wires);
      REQUIRE(endings[0].error == "");
      const run::ReplicasReport& replicas = *endings[0].report->replicas;
      CHECK(replicas.pushed_per_step.value == kVector / every);
      CHECK(replicas.fetched_per_step.value == (8 / every + 2) * kVector / 8);
      CHECK(static_cast<std::int64_t>(wires.sent()) ==
            10 * kHead + 4 / every * kVector + (4 / every + 1) * kVector);
      CHECK(pp::test::run_plan(plan, options).report.replicas->pushed_per_step == replicas.pushed_per_step);
    }
  }

  TEST_CASE(
      "a checkpoint of two ranks goes on on two, and on one, as an uninterrupted run with the same ones") {
    const plan::Plan plan = served_plan("downpour", 2, OptimizerName::adagrad);
    run::RunOptions options = short_run(12);
    options.epochs.reset();
    options.optimizer["momentum"].reset();
    options.interleave = 4;
    options.checkpoint_steps = 6;
    const TestFolder folder;
    const auto checkpoint_in = [&](run::RunOptions& to, const char* name) {
      to.checkpoint = folder.path() / name;
    };
    run::RunOptions whole = options, begun = options;
    whole.steps = 18;
    checkpoint_in(whole, "whole");
    const pp::test::Run expected = pp::test::run_plan(plan, whole);
    begun.steps = 6;
    checkpoint_in(begun, "begun");
    for (const Ending& ending : train(2, plan, begun)) REQUIRE(ending.error == "");
    run::RunOptions resumed = whole;
    resumed.resume = begun.checkpoint;
    for (const int ranks : {2, 1}) {
      checkpoint_in(resumed, ranks == 2 ? "two" : "one");
      const pp::test::Run found = run_on(ranks, plan, resumed);
      CHECK(found.report.resumed.has_value());
      CHECK(pp::test::first_difference(expected.tensors, found.tensors) == "");
    }
  }

  TEST_CASE("a replica that fails on any rank ends all, and rank 0 names rank, worker and operation") {
    for (const char* schedule : {"downpour", "parameter-server"}) {
      for (const int where : {0, 1, 2}) {
        run::RunOptions options = short_run(12);
        options.before_op = [&](std::int64_t step, WorkerId worker, const plan::Op& op) {
          if (step >= 3 && number(worker) == where && op.kind == plan::OpKind::backward)
            throw std::runtime_error("the disk is on fire");
        };
        plan::Plan plan = served_plan(schedule, 3);
        if (std::string(schedule) == "parameter-server")
          plan =
              make_plan({.model = pp::test::mlp(2), .replicas = {3}, .schedule = schedule, .micro_batches = 3});
        const std::vector<Ending> endings = train(3, plan, options);
        const std::string text = std::to_string(where);
        CAPTURE(endings[0].error);
        CHECK(endings[0].error.starts_with((where == 0 ? "" : "rank " + text + ": ") + "worker " + text +
                                           ": stage 0: B0."));
        CHECK(endings[0].error.ends_with("the disk is on fire"));
        for (const std::size_t r : {1, 2}) CHECK(endings[r].said_elsewhere);
      }
    }
  }

  TEST_CASE("a replica that is not heard of for the stall timeout ends the run, which names its rank") {
    run::RunOptions options = short_run(3999);
    options.stall_timeout = Seconds(2);
    std::atomic<ThreadPeers*> silent = nullptr;
    options.before_op = [&](std::int64_t step, WorkerId worker, const plan::Op&) {
      if (step >= 30 && number(worker) == 1) {
        silent.load()->mute = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    };
    const auto endings = train(3, served_plan("downpour", 3), options, [&](ThreadPeers& peers, auto&, auto&) {
      if (peers.rank() == 1) silent = &peers;
    });
    CAPTURE(endings[0].error);
    CHECK(endings[0].error.starts_with("rank 1 (workers 1) has been silent for 2 s"));
    CHECK(endings[2].said_elsewhere);
  }

  TEST_CASE("who interrupts any rank ends the run after what has begun, with a report") {
    for (const char* schedule : {"downpour", "ssp"}) {
      const plan::Plan plan = served_plan(schedule, 3);
      run::RunOptions options = short_run(30000);
      std::atomic<int> begun = 0;
      options.before_op = [&](std::int64_t step, WorkerId, const plan::Op&) { begun = static_cast<int>(step); };
      Wires wires(3);
      std::optional<run::RunReport> report;
      pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
        pp::test::SilentObserver observer;
        auto mine =
            run::run_together(peers, plan, options, observer, [&] { return peers.rank() == 2 && begun > 20; });
        if (peers.rank() == 0) report = std::move(mine);
      });
      CHECK(report->exit_reason == "interrupted");
      CHECK(report->step_losses.size() > 20);
      CHECK(report->step_losses.size() % 3 == 0);  // whole rounds
    }
  }

  TEST_CASE("an error of the server itself ends the run by its name") {
    class Broken final : public run::WeightStore {
      void fetch(int, const at::Tensor&) const override {}
      void push(int, run::Step, const run::FlatTensors&, double) override {
        throw std::runtime_error("no room for an optimizer");
      }
    };
    Wires wires(2);
    pp::test::on_ranks(wires, [&](ThreadPeers& peers) {
      run::Coordinator coordinator(2);
      const at::Tensor vector = at::ones({4});
      if (peers.rank() == 1) {
        run::RemoteServer line(coordinator, peers, {WorkerId{1}, 0}, vector);
        line.begin(0, {});
        const run::FlatTensors gradient{vector, {vector}};
        line.finish(0, &gradient, 0.5);
        return;
      }
      run::ServerOptions options;
      options.policy = plan::WeightPolicy::downpour;
      options.replicas = {WorkerId{1}};
      run::ParameterServer server(coordinator, options);
      server.open(std::make_unique<Broken>());
      run::RequestServer request_server(coordinator, server, peers, {{0, 1}});
      request_server.open({vector, {vector}});
      CHECK_THROWS_AS(request_server.await_closed(WorkerId{0}), run::Stopped);
      try {
        std::rethrow_exception(coordinator.error());
      } catch (const Error& error) {
        CHECK(error.what() == std::string("the parameter server: no room for an optimizer"));
      }
    });
  }

  TEST_CASE("hogwild is refused on several ranks, with its reason and what to do") {
    const auto endings = train(2, served_plan("hogwild", 2), short_run(8));
    CHECK(endings[0].error ==
          "schedule hogwild: its replicas change the same memory without a lock, and 2 ranks share none; start "
          "it without mpirun, or plan with downpour");
    CHECK(endings[1].said_elsewhere);
  }
}

}  // namespace served_ranks_test

#include <atomic>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/model/errors.h"
#include "librun/drive/driver.h"
#include "librun/drive/work.h"
#include "librun/setup/make_setup.h"
#include "librun/threads/watchdog.h"
#include "tests/librun/folder.h"
#include "tests/librun/jobs.h"
#include "tests/librun/models.h"
#include "tests/librun/reference.h"
#include "tests/support/plans.h"
#include "tests/support/torch_test.h"

#include <thread>

namespace failure_test {

using namespace pp;

namespace {

run::RunOptions options_with(std::function<void(std::int64_t, WorkerId, const plan::Op&)> before_op) {
  run::RunOptions options;
  options.data = "synthetic";
  options.synthetic_samples = 32;
  options.steps = 6;
  options.before_op = std::move(before_op);
  return options;
}

// The message of the error that ends the run, and its kind.
std::pair<std::string, ErrorKind> failure(const plan::Plan& plan, const run::RunOptions& options) {
  test::SilentObserver observer;
  try {
    test::run_checked(plan, options, observer);
  } catch (const Error& error) {
    return {error.what(), error.kind()};
  }
  return {"completed", ErrorKind::internal};
}

bool is(const plan::Op& op, const char* text) { return plan::to_text(op) == text; }

}  // namespace

TEST_SUITE("librun/failure") {
  TEST_CASE("a worker that throws stops all; the error names worker, stage, operation and leaves no file") {
    const TestFolder folder;
    for (const char* schedule : {"gpipe", "1f1b"}) {
      const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3, 6}, .schedule = schedule});
      run::RunOptions options = options_with([](std::int64_t step, WorkerId, const plan::Op& op) {
        if (step == 2 && is(op, "B1.3")) throw std::runtime_error("the disk is on fire");
      });
      options.save_weights = folder.path() / "weights.safetensors";
      const auto [message, kind] = failure(plan, options);
      CHECK(message == "worker 1: stage 1: B1.3: the disk is on fire");
      CHECK(kind == ErrorKind::run);
      CHECK(folder.file_count() == 0);
    }
  }

  TEST_CASE("an error of the plan's kind during work becomes a failure of the run") {
    const auto [message, kind] =
        failure(make_plan({.model = test::dropout_mlp()}), options_with([](auto, WorkerId, const plan::Op& op) {
                  if (is(op, "U0")) throw Error(ErrorKind::data, "bad value");
                }));
    CHECK(message == "worker 0: stage 0: U0: bad value");
    CHECK(kind == ErrorKind::run);
  }

  TEST_CASE("in a stream with replicas a failure ends all workers, also those in an all-reduce") {
    const plan::Plan plan = make_plan({.model = test::mlp(2),
                                       .cuts = {2},
                                       .replicas = {2, 1},
                                       .schedule = "pipedream",
                                       .mini_batch = 4,
                                       .micro_batches = 1});
    const auto [message, kind] =
        failure(plan, options_with([](std::int64_t step, WorkerId, const plan::Op& op) {
                  if (step == 3 && op.kind == plan::OpKind::backward && op.stage == StageId{0})
                    throw std::runtime_error("lost");
                }));
    CHECK(message == "worker 1: stage 0: B0.3: lost");
    CHECK(kind == ErrorKind::run);
  }

  TEST_CASE("several failures at once: the first one is told") {
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}});
    const auto [message, kind] =
        failure(plan, options_with([](auto, WorkerId, const plan::Op&) { throw std::runtime_error("no"); }));
    CHECK((message == "worker 0: stage 0: F0.0: no" || message == "worker 1: stage 1: F1.0: no"));
    CHECK(kind == ErrorKind::run);
  }

  TEST_CASE("a stall ends the run, names every worker's operation and leaves behind who does not come back") {
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}, .schedule = "gpipe"});
    std::atomic<bool> over = false, back = false;
    const TestFolder folder;
    run::RunOptions options = options_with([&](std::int64_t step, WorkerId, const plan::Op& op) {
      if (step != 1 || !is(op, "F1.2")) return;
      over.wait(false);  // until the test has the message: only then may it come back
      back = true;
      back.notify_all();
    });
    options.stall_timeout = Seconds(1);
    options.save_weights = folder.path() / "weights.safetensors";
    const int before = run::runs_left_behind();
    const auto [message, kind] = failure(plan, options);
    CHECK(message ==
          "stalled: no operation has ended for 1 s; raise the stall timeout if single operations take that "
          "long\n"
          "  worker 0: B0.0, waits for the gradient of layer 2 for micro-batch 0 of step 2 from worker 1\n"
          "  worker 1: F1.2, running\n"
          "  does not end, so it is left behind after 1 s: worker 1: F1.2, running");
    CHECK(kind == ErrorKind::run);
    CHECK(run::runs_left_behind() == before + 1);
    CHECK(folder.file_count() == 0);
    over = true;
    over.notify_all();
    back.wait(false);
  }

  TEST_CASE(
      "the last operation of a run that does not come back is a stall too, although nobody waits for it") {
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}});
    std::atomic<bool> over = false, back = false;
    run::RunOptions options = options_with([&](std::int64_t step, WorkerId, const plan::Op& op) {
      if (step != 5 || !is(op, "U0")) return;
      over.wait(false);
      back = true;
      back.notify_all();
    });
    options.stall_timeout = Seconds(1);
    options.evaluate = false;
    const auto [message, kind] = failure(plan, options);
    CHECK(
        message ==
        "stalled: no operation has ended for 1 s; raise the stall timeout if single operations take that long\n"
        "  worker 0: U0, running\n"
        "  worker 1: between steps, waits for the next command\n"
        "  does not end, so it is left behind after 1 s: worker 0: U0, running");
    over = true;
    over.notify_all();
    back.wait(false);
  }

  TEST_CASE("a worker alone that never comes back is named, and left behind after the grace time") {
    const plan::Plan plan = make_plan({.model = test::dropout_mlp()});
    std::atomic<bool> over = false, back = false;
    run::RunOptions options = options_with([&](std::int64_t step, WorkerId, const plan::Op& op) {
      if (step != 2 || !is(op, "F0.1")) return;
      over.wait(false);
      back = true;
      back.notify_all();
    });
    options.stall_timeout = Seconds(1);
    const auto [message, kind] = failure(plan, options);
    CHECK(
        message ==
        "stalled: no operation has ended for 1 s; raise the stall timeout if single operations take that long\n"
        "  worker 0: F0.1, running\n"
        "  does not end, so it is left behind after 1 s: worker 0: F0.1, running");
    over = true;
    over.notify_all();
    back.wait(false);
  }

  TEST_CASE("an observer that blocks for longer than the stall timeout is no stall") {
    class Slow : public test::SilentObserver {
      void step(const run::Progress& progress) override {
        if (progress.step == 2) std::this_thread::sleep_for(std::chrono::seconds(3));
      }
    } observer;
    run::RunOptions options = options_with({});
    options.stall_timeout = Seconds(1);
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}});
    CHECK(test::run_checked(plan, options, observer).steps == 6);
  }

  TEST_CASE("a worker that takes longer than the stall timeout to begin is no stall") {
    run::RunOptions options = options_with({});
    options.stall_timeout = Seconds(1);
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}});
    run::Job job(plan, options, run::make_setup(plan, options));
    test::command_all(job);
    const run::Watchdog watchdog(job.coordinator, options.stall_timeout);
    run::Worker late(job, WorkerId{0}), waiting(job, WorkerId{1});
    std::thread second([&] { waiting.run(); });
    std::this_thread::sleep_for(std::chrono::seconds(3));
    std::thread first([&] { late.run(); });
    first.join();
    second.join();
    CHECK(job.coordinator.error() == nullptr);
  }

  TEST_CASE("a worker that never waits notices before its next operation that the run is stopped") {
    std::vector<std::string> seen;
    run::Job* running = nullptr;
    const run::RunOptions options = options_with([&](std::int64_t, WorkerId, const plan::Op& op) {
      seen.push_back(plan::to_text(op));
      if (seen.size() == 3) running->coordinator.stop(nullptr);
    });
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .schedule = "gpipe"});
    run::Job job(plan, options, run::make_setup(plan, options));
    running = &job;
    test::command_all(job);
    run::Worker alone(job, WorkerId{0});
    std::thread([&] { alone.run(); }).join();
    CHECK(seen == std::vector<std::string>{"F0.0", "F0.1", "F0.2"});
  }

  TEST_CASE("a thread that cannot be started stops the others and is an error of the run") {
    const run::RunOptions options = options_with({});
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}});
    run::Job job(plan, options, run::make_setup(plan, options));
    int wanted = 0;
    const auto one = [&](run::Threads::Body body) {
      if (++wanted > 1) throw std::system_error(EAGAIN, std::generic_category());
      return std::thread(std::move(body));
    };
    CHECK_THROWS_WITH_AS(
        run::Crew(job, one),
        "thread 2 of the run cannot be started: Resource temporarily unavailable; plan for fewer "
        "devices, or raise the limit of processes (ulimit -u)",
        Error);
  }

  TEST_CASE("memory that runs out keeps its kind and its remedy on the way up") {
    run::RunOptions options = options_with([](auto, WorkerId, const plan::Op& op) {
      if (is(op, "F1.1")) throw std::bad_alloc();
    });
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}});
    test::SilentObserver observer;
    CHECK_THROWS_WITH_AS(test::run_checked(plan, options, observer),
                         "worker 1: stage 1: F1.1: the host has no memory left; plan with more stages, smaller "
                         "micro-batches or --recompute auto",
                         model::OutOfMemory);
  }

  TEST_CASE("a loss that is not finite ends the run with a remedy") {
    run::RunOptions options = options_with({});
    options.learning_rate = 1e30;
    const auto [message, kind] = failure(make_plan({.model = test::regression(), .cuts = {1}}), options);
    CHECK((message == "step 2: the loss is inf; lower the learning rate of 1e+30 or check the data" ||
           message == "step 2: the loss is nan; lower the learning rate of 1e+30 or check the data"));
    CHECK(kind == ErrorKind::run);
  }

  TEST_CASE("an error in the observer stops the workers and passes through") {
    class Broken : public test::SilentObserver {
      void step(const run::Progress& progress) override {
        if (progress.step == 2) throw std::runtime_error("terminal gone");
      }
    } observer;
    const plan::Plan plan = make_plan({.model = test::dropout_mlp(), .cuts = {3}});
    CHECK_THROWS_WITH_AS(test::run_checked(plan, options_with({}), observer), "terminal gone",
                         std::runtime_error);
  }
}

}  // namespace failure_test

#include "librun/worker/threads.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <optional>
#include <system_error>
#include <thread>

#include "libprofile/core/error.h"
#include "librun/worker/progress.h"
#include "librun/worker/record.h"
#include "tests/support/doctest.h"

using namespace pp;
using namespace pp::run;

TEST_SUITE("librun/worker/threads") {
  TEST_CASE("a thread that the system refuses is an error with a remedy; the others are joined") {
    int wanted = 0;
    std::atomic<bool> told = false, ended = false;
    const auto two = [&](Threads::Body body) {
      if (++wanted > 2) throw std::system_error(EAGAIN, std::generic_category());
      return std::thread(std::move(body));
    };
    {
      Threads threads(two);
      threads.add([] {});
      threads.add([&] {
        told.wait(false);
        ended = true;
      });
      CHECK_THROWS_WITH_AS(threads.add([] {}),
                           "thread 3 of the run cannot be started: Resource temporarily unavailable; plan for "
                           "fewer devices, or raise the limit of processes (ulimit -u)",
                           Error);
      told = true;
      told.notify_all();
    }
    CHECK(ended);
  }

  TEST_CASE("the first thread that has not ended is named") {
    std::atomic<bool> told = false;
    Threads threads;
    threads.add([] {});
    threads.add([&] { told.wait(false); });
    threads.add([&] { told.wait(false); });
    CHECK(threads.join_within(Seconds(0.5)) == std::optional<std::size_t>(1));
    told = true;
    told.notify_all();
    CHECK(threads.join_within(Seconds(60)) == std::nullopt);
  }
}

TEST_SUITE("librun/worker/progress") {
  TEST_CASE("what nobody has begun of a stretch is taken back, in whole rounds") {
    Coordinator coordinator(2);
    Commands single(coordinator), rounds(coordinator, /*round=*/3);
    for (Commands* each : {&single, &rounds}) {
      each->train(0, {.first = 0, .end = 20});
      each->evaluate(0, 5);
      each->stop();
      each->grant(9);
      CHECK(each->next(WorkerId{0}).stretch.end == 20);
      CHECK(each->next(WorkerId{1}).kind == Command::Kind::train);
      CHECK(each->admit(WorkerId{0}, 3));
      CHECK(each->admit(WorkerId{1}, 1));
    }
    CHECK(single.cut(Commands::Cut::evaluation_too) == 4);  // steps 0..3
    CHECK(rounds.cut(Commands::Cut::evaluation_too) == 6);  // 3, 4 and 5 are one round
    CHECK(single.admit(WorkerId{1}, 3));
    CHECK_FALSE(single.admit(WorkerId{0}, 4));
    CHECK(rounds.admit(WorkerId{1}, 5));
    CHECK_FALSE(rounds.admit(WorkerId{0}, 6));
    CHECK(rounds.end_of_stretch(WorkerId{0}) == 6);
    // The evaluation behind the cut is left out.
    CHECK(single.next(WorkerId{0}).kind == Command::Kind::stop);
  }

  TEST_CASE("steps of the next stretch begin while others still end the last one") {
    Coordinator coordinator(2);
    Commands commands(coordinator);
    commands.train(0, {.first = 0, .end = 2});
    commands.train(1, {.first = 2, .end = 4, .epoch_first = 2});
    commands.grant(3);
    for (const WorkerId worker : {WorkerId{0}, WorkerId{1}}) commands.next(worker);
    CHECK(commands.admit(WorkerId{0}, 1));
    CHECK(commands.next(WorkerId{0}).epoch == 1);
    CHECK(commands.admit(WorkerId{0}, 2));
    CHECK(commands.admit(WorkerId{1}, 1));
    CHECK(commands.cut(Commands::Cut::evaluation_too) == 3);
    CHECK_FALSE(commands.admit(WorkerId{0}, 3));
    CHECK(commands.next(WorkerId{1}).stretch.end == 3);
    CHECK(commands.admit(WorkerId{1}, 2));
  }

  TEST_CASE("steps begin when they are granted, and a cut wakes who waits") {
    Coordinator coordinator(1);
    Commands commands(coordinator);
    commands.train(0, {.first = 0, .end = 10});
    commands.grant(2);
    commands.next(WorkerId{0});
    CHECK(commands.admit(WorkerId{0}, 1));
    bool third = true;
    std::thread waiting([&] { third = commands.admit(WorkerId{0}, 2); });
    commands.cut(Commands::Cut::evaluation_too);
    waiting.join();
    CHECK_FALSE(third);
    commands.grant(10);  // after the cut: no effect
    CHECK_FALSE(commands.admit(WorkerId{0}, 5));
    CHECK(commands.admit(WorkerId{0}, 1));
  }

  TEST_CASE("every worker gets every command, in order and at its own pace") {
    Coordinator coordinator(2);
    Commands commands(coordinator);
    commands.train(0, {.first = 0, .end = 2});
    CHECK(commands.next(WorkerId{0}).kind == Command::Kind::train);
    commands.evaluate(0, 5);
    const Command evaluation = commands.next(WorkerId{0});
    CHECK(evaluation.kind == Command::Kind::evaluate);
    CHECK(commands.admit(WorkerId{0}, 4));  // nothing of an evaluation is held back
    commands.stop();
    CHECK(commands.next(WorkerId{0}).kind == Command::Kind::stop);
    CHECK(commands.next(WorkerId{1}).kind == Command::Kind::train);
    CHECK(commands.next(WorkerId{1}).kind == Command::Kind::evaluate);
  }

  TEST_CASE("a cut in an evaluation leaves the trained steps as they are") {
    Coordinator coordinator(1);
    Commands commands(coordinator);
    commands.train(0, {.first = 0, .end = 2});
    commands.evaluate(0, 5);
    commands.grant(2);
    commands.next(WorkerId{0});
    CHECK(commands.admit(WorkerId{0}, 1));
    CHECK(commands.next(WorkerId{0}).kind == Command::Kind::evaluate);
    CHECK(commands.admit(WorkerId{0}, 1));
    CHECK(commands.cut(Commands::Cut::evaluation_too) == 2);
    CHECK_FALSE(commands.admit(WorkerId{0}, 2));
  }

  TEST_CASE("training that is cut for a snapshot goes on behind it, and can be cut again") {
    Coordinator coordinator(1);
    Commands commands(coordinator);
    const auto kind = [&] { return commands.next(WorkerId{0}).kind; };
    commands.train(0, {.first = 0, .end = 4});
    commands.evaluate(0, 1);
    commands.grant(2);
    CHECK(kind() == Command::Kind::train);
    CHECK(commands.admit(WorkerId{0}, 1));
    CHECK(commands.cut(Commands::Cut::training) == 2);
    commands.snapshot(2, /*last=*/false);
    commands.train(0, {.first = 2, .end = 4});
    commands.evaluate(0, 1);
    commands.grant(4);
    CHECK_FALSE(commands.admit(WorkerId{0}, 2));
    const Command snapshot = commands.next(WorkerId{0});
    CHECK(snapshot.kind == Command::Kind::snapshot);
    CHECK(snapshot.step == 2);
    CHECK(kind() == Command::Kind::train);
    CHECK(commands.admit(WorkerId{0}, 3));
    CHECK(commands.cut(Commands::Cut::training) == 4);  // nothing is left to cut
    CHECK(kind() == Command::Kind::evaluate);
    CHECK(commands.admit(WorkerId{0}, 0));
  }

  TEST_CASE("whoever races with a cut, all workers leave after the same step, the one that the cut says") {
    constexpr int kWorkers = 3;
    for (int round = 0; round < 50; ++round) {
      Coordinator coordinator(kWorkers);
      Commands commands(coordinator);
      commands.train(0, {.first = 0, .end = 100000});
      commands.stop();
      commands.grant(100000);
      std::array<Step, kWorkers> ended{};
      std::vector<std::thread> workers;
      for (int w = 0; w < kWorkers; ++w) {
        workers.emplace_back([&, w] {
          commands.next(WorkerId{w});
          Step step = 0;
          while (commands.admit(WorkerId{w}, step)) ++step;
          ended[static_cast<std::size_t>(w)] = step;
        });
      }
      const Step end = commands.cut(Commands::Cut::evaluation_too);
      for (std::thread& worker : workers) worker.join();
      for (const Step step : ended) CHECK(step == end);
    }
  }

  TEST_CASE("commands that everybody has left are forgotten, and a cut still knows where training ended") {
    Coordinator coordinator(1);
    Commands commands(coordinator);
    for (int epoch = 0; epoch < 5; ++epoch) {
      commands.train(epoch, {.first = 3 * epoch, .end = 3 * epoch + 3});
      commands.evaluate(epoch, 1);
      commands.grant(3 * epoch + 3);
      commands.next(WorkerId{0});
      for (Step step = 3 * epoch; step < 3 * epoch + 3; ++step) CHECK(commands.admit(WorkerId{0}, step));
      commands.next(WorkerId{0});
      CHECK(commands.admit(WorkerId{0}, 0));
    }
    CHECK(commands.cut(Commands::Cut::evaluation_too) == 15);
  }

  TEST_CASE("a step is complete when all updates are there; losses come in micro-batch order") {
    Coordinator coordinator(2);
    Ledger ledger(coordinator, {.micro_batches = 2, .updates = 2});
    const auto start = Coordinator::Clock::now();
    std::thread worker([&] {
      ledger.loss(5, 1, 0.25, 1);
      ledger.loss(5, 0, 0.75, 3);
      ledger.updated(5, WorkerId{1}, start + std::chrono::seconds(2), {Seconds(0.5), Bytes(30)});
      ledger.updated(5, WorkerId{1}, start + std::chrono::seconds(1), {Seconds(0.25), Bytes(20), 1.5});
    });
    const auto patient = [] { return false; };
    const std::optional<StepResult> result = ledger.await_step(5, 5, patient);
    worker.join();
    REQUIRE(result.has_value());
    CHECK(result->losses == std::vector<double>{0.75, 0.25});
    CHECK(result->end == start + std::chrono::seconds(2));
    REQUIRE(result->workers.size() == 2);
    CHECK(result->workers[0].busy.count() == 0);
    CHECK(result->workers[1].busy.count() == 0.75);
    CHECK(result->workers[1].peak == Bytes(30));
    CHECK(result->workers[1].gradient_norm == 1.5);
  }

  TEST_CASE("a driver that sleeps for the last of some steps gets them all, one after the other") {
    Coordinator coordinator(1);
    Ledger ledger(coordinator, {.micro_batches = 1, .updates = 1, .steps = 4});
    std::thread worker([&] {
      for (Step step = 0; step < 3; ++step) {
        ledger.loss(step, 0, static_cast<double>(step), 1);
        ledger.updated(step, WorkerId{0}, {}, {});
      }
    });
    for (Step step = 0; step < 3; ++step) {
      const std::optional<StepResult> result = ledger.await_step(step, /*last=*/2, [] { return false; });
      REQUIRE(result.has_value());
      CHECK(result->losses == std::vector<double>{static_cast<double>(step)});
    }
    worker.join();
  }
}

TEST_SUITE("librun/worker/record") {
  TEST_CASE("the median of many times is kept in bounded memory") {
    TimeSample sample;
    for (int i = 0; i < 100000; ++i) sample.add(Seconds(i % 1000));
    CHECK(sample.count() == 100000);
    CHECK(sample.median().count() == doctest::Approx(500).epsilon(0.05));
  }

  TEST_CASE("the median of few times is exact") {
    CHECK(median({Seconds(3), Seconds(1), Seconds(2)}) == Seconds(2));
    CHECK(median({}) == Seconds(0));
  }
}

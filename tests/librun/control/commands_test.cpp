#include "librun/control/commands.h"

#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "tests/support/doctest.h"

namespace commands_test {

using namespace pp;
using namespace pp::run;

TEST_SUITE("librun/control/commands") {
  TEST_CASE("what nobody has begun of a range is taken back, in whole rounds") {
    Coordinator coordinator(2);
    Commands single(coordinator), rounds(coordinator, /*round=*/3);
    for (Commands* each : {&single, &rounds}) {
      each->train(0, {.first = 0, .end = 20});
      each->evaluate(0, 5);
      each->stop();
      each->grant(9);
      CHECK(each->next(WorkerId{0}).range.end == 20);
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
    CHECK(rounds.end_of_range(WorkerId{0}) == 6);
    // The evaluation behind the cut is left out.
    CHECK(single.next(WorkerId{0}).kind == Command::Kind::stop);
  }

  TEST_CASE("steps of the next range begin while others still end the last one") {
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
    CHECK(commands.next(WorkerId{1}).range.end == 3);
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
}

}  // namespace commands_test

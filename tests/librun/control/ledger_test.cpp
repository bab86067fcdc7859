#include "librun/control/ledger.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/doctest.h"

namespace ledger_test {

using namespace pp;
using namespace pp::run;

TEST_SUITE("librun/control/ledger") {
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

  TEST_CASE("what the workers of a process hand in for another ledger goes there once a step") {
    Coordinator coordinator(2);
    const LedgerShape shape{.micro_batches = 2, .updates = 2, .evaluations = 2};
    Ledger here(coordinator, shape), there(coordinator, shape);
    std::vector<LedgerEntry> entries;
    here.relay(/*updates=*/2, [&](LedgerEntry entry) { entries.push_back(std::move(entry)); });
    const auto end = Coordinator::Clock::now();
    here.loss(5, 0, 0.75, 3);
    here.updated(5, WorkerId{0}, end, {Seconds(0.5), Bytes(30)});
    here.loss(5, 1, 0.25, 1);
    CHECK(entries.empty());
    here.updated(5, WorkerId{1}, end + std::chrono::seconds(1), {Seconds(0.25), Bytes(20)});
    REQUIRE(entries.size() == 1);
    there.enter(entries.front());
    const auto patient = [] { return false; };
    const std::optional<StepResult> result = there.await_step(5, 5, patient);
    REQUIRE(result.has_value());
    CHECK(result->losses == std::vector<double>{0.75, 0.25});
    CHECK(result->weights == std::vector<double>{3, 1});
    CHECK(result->end == end + std::chrono::seconds(1));
    CHECK(result->workers[0].peak == Bytes(30));
    CHECK(result->workers[1].busy == Seconds(0.25));

    here.evaluation(0, 1, {.loss_sum = 2, .weight = 1});
    here.evaluation(0, 0, {.loss_sum = 1, .weight = 4});
    CHECK(entries.size() == 1);
    here.evaluated();
    here.evaluated();  // another worker, who has nothing to say
    REQUIRE(entries.size() == 2);
    there.enter(entries.back());
    CHECK(there.await_evaluation(0, patient)->weight == 5);
  }

  // Worker 0 has begun its evaluation before worker 1 has made the last update of the epoch.
  TEST_CASE("an evaluation that is handed in between two updates of a step leaves both to go together") {
    Coordinator coordinator(2);
    const LedgerShape shape{.micro_batches = 1, .updates = 2, .evaluations = 1};
    Ledger here(coordinator, shape), there(coordinator, shape);
    std::vector<LedgerEntry> entries;
    here.relay(/*updates=*/2, [&](LedgerEntry entry) { entries.push_back(std::move(entry)); });
    here.loss(5, 0, 0.5, 1);
    here.updated(5, WorkerId{0}, {}, {});
    here.evaluation(0, 0, {.loss_sum = 3, .weight = 2});
    here.evaluated();
    REQUIRE(entries.size() == 1);
    CHECK(entries[0].updates.empty());
    CHECK(entries[0].losses.empty());
    here.updated(5, WorkerId{1}, {}, {});
    REQUIRE(entries.size() == 2);
    for (const LedgerEntry& entry : entries) there.enter(entry);
    const auto patient = [] { return false; };
    CHECK(there.await_step(5, 5, patient)->losses == std::vector<double>{0.5});
    CHECK(there.await_evaluation(0, patient)->loss_sum == 3);
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

}  // namespace ledger_test

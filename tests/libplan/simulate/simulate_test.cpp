#include "libplan/simulate/simulate.h"

#include <cmath>

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::approx;
using test::costs;
using test::equal_stages;
using test::error_of;
using test::makespan;
using test::straight;
using test::times;
using test::written;

TEST_SUITE("libplan/simulate/simulate") {
  TEST_CASE("two stages, two micro-batches: every start and end") {
    const SimulationResult result = simulate(equal_stages(straight("1f1b", 2, 2)));
    // worker 0  F0.0 0-1  F0.1 1-2  B0.0 when B1.0 is done, 4-6   B0.1 when B1.1 is done, 7-9 worker 1 F1.0 1-2
    // B1.0 2-4  F1.1 4-5  B1.1 5-7
    CHECK(times(result, 0) == "F0.0 0-1, F0.1 1-2, B0.0 4-6, B0.1 7-9, U0 9-9");
    CHECK(times(result, 1) == "F1.0 1-2, B1.0 2-4, F1.1 4-5, B1.1 5-7, U1 7-7");
    CHECK(result.makespan.count() == 9);
    CHECK(result.busy == std::vector<Seconds>{Seconds(6), Seconds(6)});
    CHECK(result.bubble_fraction == approx(1 - 12.0 / 18));
  }

  TEST_CASE("workers of one piece of hardware take turns there") {
    // F takes 1, B 2. At 1 both F0.1 and F1.0 can begin, at 5 both F1.1 and B0.0, at 6 B1.1 comes behind B0.0,
    // at 10 U1 behind B0.1.
    SimulationInput input = equal_stages(straight("1f1b", 2, 2));
    input.hardware = {0, 0};
    const SimulationResult result = simulate(input);
    CHECK(times(result, 0) == "F0.0 0-1, F0.1 1-2, B0.0 6-8, B0.1 10-12, U0 12-12");
    CHECK(times(result, 1) == "F1.0 2-3, B1.0 3-5, F1.1 5-6, B1.1 8-10, U1 12-12");
    // A step takes as long as all its operations, of which none can run beside another: 4 F and 4 B.
    CHECK(chained_period(input).count() == 12);
    input.hardware = {0, 1};
    CHECK(simulate(input).makespan.count() == 9);
  }

  TEST_CASE("where nobody waits the bubble is zero, not what rounding makes of it") {
    // Six times 0.7 added up is more than 6 x 0.7, in doubles.
    ScheduleRequest request{"gpipe", {6}, 6};
    SimulationInput input = equal_stages(program_set(request));
    input.stages = {costs(0.1, 0.6)};
    CHECK(simulate(input).bubble_fraction == 0);
    CHECK(!std::signbit(simulate(input).bubble_fraction));
  }

  TEST_CASE("operations come by start time, then worker, then place in the list") {
    const SimulationResult result = simulate(equal_stages(straight("1f1b", 2, 2)));
    std::vector<Op> order;
    for (const OpEvent& event : result.ops) order.push_back(event.op);
    CHECK(to_text(order) == "F0.0 F0.1 F1.0 B1.0 B0.0 F1.1 B1.1 B0.1 U1 U0");
  }

  TEST_CASE("split backwards free the input gradient early") {
    // worker 1: F 1-2, I 2-3, W 3-4; worker 0: F 0-1, I 3-4, W 4-5. A whole backward would end at 4 and 6.
    const SimulationResult result =
        simulate(equal_stages(written({"F0.0 I0.0 W0.0 U0", "F1.0 I1.0 W1.0 U1"}, {{0}, {1}}, 1)));
    CHECK(times(result, 0) == "F0.0 0-1, I0.0 3-4, W0.0 4-5, U0 5-5");
    CHECK(times(result, 1) == "F1.0 1-2, I1.0 2-3, W1.0 3-4, U1 4-4");
  }

  TEST_CASE("two stages per worker: what stays on a worker is there at once and is no message") {
    // V order: stages 0 and 3 on worker 0, 1 and 2 on worker 1.
    const SimulationResult result = simulate(equal_stages(
        written({"F0.0 F3.0 B3.0 B0.0 U0 U3", "F1.0 F2.0 B2.0 B1.0 U1 U2"}, {{0}, {1}, {1}, {0}}, 1)));
    CHECK(times(result, 0) == "F0.0 0-1, F3.0 3-4, B3.0 4-6, B0.0 10-12, U0 12-12, U3 12-12");
    CHECK(times(result, 1) == "F1.0 1-2, F2.0 2-3, B2.0 6-8, B1.0 8-10, U1 10-10, U2 10-10");
    REQUIRE(result.messages.size() == 4);
    CHECK(to_text(result.messages[1].producer) == "F2.0");
    CHECK(to_text(result.messages[3].producer) == "B1.0");
  }

  TEST_CASE("a recompute runs while the gradient is on its way") {
    // worker 0: F 0-1, R 1-2, waits for B1.0 (2-4), B 4-6. worker 1: F 1-2, B 2-4.
    const SimulationResult result =
        simulate(equal_stages(written({"F0.0 R0.0 B0.0 U0", "F1.0 B1.0 U1"}, {{0}, {1}}, 1)));
    CHECK(times(result, 0) == "F0.0 0-1, R0.0 1-2, B0.0 4-6, U0 6-6");
  }

  TEST_CASE("the first forward, backward and weight gradient after an update take their own time") {
    SimulationInput input = equal_stages(written({"F0.0 B0.0 F0.1 B0.1 U0"}, {{0}}, 2));
    input.stages[0].first = FirstTimes{Seconds(1.5), Seconds(2.25), {}};
    CHECK(times(simulate(input), 0) ==
          "F0.0 0-1.5, B0.0 1.5-3.75, F0.1 3.75-4.75, B0.1 4.75-6.75, U0 6.75-6.75");
    input = equal_stages(written({"F0.0 I0.0 F0.1 I0.1 W0.0 W0.1 U0"}, {{0}}, 2));
    input.stages[0].first = FirstTimes{Seconds(1.5), {}, Seconds(0.5)};
    CHECK(times(simulate(input), 0) ==
          "F0.0 0-1.5, I0.0 1.5-2.5, F0.1 2.5-3.5, I0.1 3.5-4.5, W0.0 4.5-5, W0.1 5-6, U0 6-6");
  }

  TEST_CASE("an update makes the next operations of its stage first ones again, not those of other stages") {
    SimulationInput input =
        equal_stages(written({"F0.0 F1.0 B1.0 B0.0 U0 F0.1 F1.1 B1.1 B0.1 U0 U1"}, {{0}, {0}}, 2));
    input.stages[0].first = input.stages[1].first = FirstTimes{Seconds(2), Seconds(2), {}};
    // Forwards 2, 2, then of stage 0 2 again and of stage 1 1; backwards take 2 in any case.
    CHECK(times(simulate(input), 0) ==
          "F0.0 0-2, F1.0 2-4, B1.0 4-6, B0.0 6-8, U0 8-8, F0.1 8-10, F1.1 10-11, B1.1 11-13, B0.1 13-15, "
          "U0 15-15, U1 15-15");
  }

  TEST_CASE("micro-batches of unequal size take unequal time") {
    SimulationInput input = equal_stages(straight("gpipe", 1, 2));
    input.stages[0].update = Seconds(0.5);
    input.micro_batch_scale = {1, 0.5};
    // F 0-1, F 1-1.5, B 1.5-3.5, B 3.5-4.5; the update does not shrink.
    CHECK(times(simulate(input), 0) == "F0.0 0-1, F0.1 1-1.5, B0.0 1.5-3.5, B0.1 3.5-4.5, U0 4.5-5");
  }

  TEST_CASE("gpipe with unequal stages: the sums plus M-1 times the slowest, 1f1b shorter") {
    // F = 3,2,5,2, B = 2F, M = 8: 12 + 7*5 + 24 + 7*10 = 141; 1f1b 136.
    for (const auto& [name, wanted] : {std::pair{"gpipe", 141.0}, std::pair{"1f1b", 136.0}}) {
      SimulationInput input = equal_stages(straight(name, 4, 8));
      input.stages = {costs(3, 6), costs(2, 4), costs(5, 10), costs(2, 4)};
      CHECK(makespan(input) == approx(wanted));
    }
  }

  TEST_CASE("programs that cannot finish are reported like the validator does") {
    CHECK(
        error_of([] {
          simulate(equal_stages(written({"F0.0 B0.0 F0.1 B0.1 U0", "F1.0 F1.1 B1.0 B1.1 U1"}, {{0}, {1}}, 2)));
        }) ==
        "plan: deadlock after 2 of 10 operations\n"
        "  worker 0: next B0.0 needs B1.0 (worker 1)\n"
        "  worker 1: next F1.1 needs F0.1 (worker 0)");
    CHECK(error_of([] {
            simulate(equal_stages(written({"F0.0 B0.0 AR0 U0", "F0.1 B0.1 U0"}, {{0, 1}}, 2)));
          }) ==
          "plan: deadlock after 5 of 7 operations\n"
          "  worker 0: next AR0 needs an all-reduce that another worker does not list\n"
          "  worker 1: finished");
  }

  TEST_CASE("inputs that do not fit the programs are refused") {
    const SimulationInput good = equal_stages(straight("gpipe", 2, 2));
    SimulationInput bad = good;
    bad.stages.pop_back();
    CHECK(error_of([&] { simulate(bad); }) == "simulation: 1 stage costs, expected 2");
    bad = good;
    bad.micro_batch_scale = {1, 1, 1};
    CHECK(error_of([&] { simulate(bad); }) == "simulation: 3 micro-batch scales, expected 2");
    bad = good;
    bad.links = {{Link{}, {0}}};
    CHECK(error_of([&] { simulate(bad); }) == "simulation: 1 groups of a link, expected 2");
    bad = good;
    bad.all_reduce_overlap = 1.5;
    CHECK(error_of([&] { simulate(bad); }) ==
          "simulation: all_reduce_overlap = 1.500000; it is a share, 0 to 1");
  }

  TEST_CASE("nothing to do takes no time and leaves no bubble") {
    SimulationInput input = equal_stages(straight("gpipe", 2, 2));
    input.stages = {costs(0, 0), costs(0, 0)};
    const SimulationResult result = simulate(input);
    CHECK(result.makespan.count() == 0);
    CHECK(result.bubble_fraction == 0);
  }

  TEST_CASE("the same input gives the same result, and large inputs the closed form") {
    // 8 stages, 10,000 micro-batches: 160,008 operations in (M + K - 1) * 3.
    const SimulationInput input = equal_stages(straight("1f1b", 8, 10000));
    const SimulationResult first = simulate(input);
    const SimulationResult second = simulate(input);
    CHECK(first.makespan.count() == approx(10007 * 3.0));
    CHECK(first.ops == second.ops);
    CHECK(first.messages == second.messages);
    CHECK(first.memory == second.memory);
  }
}

}  // namespace
}  // namespace pp::plan

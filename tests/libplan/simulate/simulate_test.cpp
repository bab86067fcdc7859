// Starts and ends by hand: operations, all-reduces, and weights that come from the host and go back.
#include "libplan/simulate/simulate.h"

#include <cmath>

#include "libplan/schedule/schedule.h"
#include "libplan/schedule/validate.h"
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
using namespace pp::plan;

/// One worker with two stages and one micro-batch.
SimulationInput two_stages(bool prefetch, double overlap) {
  ScheduleRequest request{"harmony-pp", {1}, 1};
  request.chunks_per_worker = 2;
  request.prefetch = prefetch;
  SimulationInput input = plan::test::equal_stages(program_set(request));
  input.swap_overlap = overlap;
  for (StageCosts& stage : input.stages) {
    stage.update = Seconds(0.5);
    stage.load = Seconds(3);
    stage.load_state = Seconds(1);
    stage.evict = Seconds(4);
    stage.weights = stage.gradients = Bytes(10);
    stage.optimizer = Bytes(20);
  }
  return input;
}

/// Two replicas, one micro-batch each: F 0-1, B 1-3; the all-reduce takes 3.
SimulationInput two_replicas(AllReduceMode mode, double overlap) {
  SimulationInput input = equal_stages(program_set({"gpipe", {2}, 2, WindowRule::win, {}}));
  input.stages[0].all_reduce = Seconds(3);
  input.stages[0].update = Seconds(0.5);
  input.all_reduce = mode;
  input.all_reduce_overlap = overlap;
  return input;
}

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

  TEST_CASE("a worker of half the speed takes twice as long for everything it computes") {
    SimulationInput twice = equal_stages(straight("1f1b", 2, 2));
    const SimulationResult result = simulate(at_speeds(twice, std::vector{1.0, 0.5}));
    CHECK(times(result, 1) == "F1.0 1-3, B1.0 3-7, F1.1 7-9, B1.1 9-13, U1 13-13");
    twice.stages[1] = costs(2, 4);
    CHECK(result.ops == simulate(twice).ops);
    // One of the two replicas is slower; their all-reduce takes what it did.
    SimulationInput replicas = two_replicas(AllReduceMode::blocking, 0);
    replicas = at_speeds(std::move(replicas), std::vector{1.0, 0.25});
    CHECK(makespan(replicas) == 4 * 3 + 3 + 4 * 0.5);
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

  TEST_CASE("programs that cannot finish are reported like the validator does") {
    CHECK(
        error_of([] {
          simulate(equal_stages(written({"F0.0 B0.0 F0.1 B0.1 U0", "F1.0 F1.1 B1.0 B1.1 U1"}, {{0}, {1}}, 2)));
        }) ==
        "plan: deadlock after 2 of 10 operations: worker 0 in receive of B0.0 and worker 1 in receive of F1.1 "
        "wait for each "
        "other\n"
        "  worker 0: next receive of B0.0 needs send of B1.0 (worker 1)\n"
        "  worker 1: next receive of F1.1 needs send of F0.1 (worker 0)");
    CHECK(error_of([] {
            simulate(equal_stages(written({"F0.0 B0.0 AR0 U0", "F0.1 B0.1 U0"}, {{0, 1}}, 2)));
          }) ==
          "plan: deadlock after 5 of 7 operations\n"
          "  worker 0: next reduce of AR0 needs an all-reduce that another worker does not list\n"
          "  worker 1: finished");
    // Worker 0 is in no circle; two others are.
    CHECK(error_of([] {
            simulate(
                equal_stages(written({"F0.0 B0.0 AR0 U0", "F0.1 B0.1 U0", "F1.0 F2.0 B2.0 B1.0 AR1 AR2 U1 U2",
                                      "F1.1 F2.1 B2.1 B1.1 AR2 AR1 U1 U2"},
                                     {{0, 1}, {2, 3}, {2, 3}}, 2)));
          }) ==
          "plan: deadlock after 13 of 23 operations: worker 2 in reduce of AR1 and worker 3 in reduce of AR2 "
          "wait "
          "for each other\n"
          "  worker 0: next reduce of AR0 needs an all-reduce that another worker does not list\n"
          "  worker 1: finished\n"
          "  worker 2: next reduce of AR1 needs reduce of AR1 (worker 3)\n"
          "  worker 3: next reduce of AR2 needs reduce of AR2 (worker 2)");
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

  TEST_CASE("what is loaded when it is needed is waited for, whoever copies it") {
    // L0 F0 E0 L1 F1 B1 U1 E1 L0 R0 B0 U0 E0: 3+1+0+4+1+2+0.5+4+4+1+2+0.5+4. The first L0 brings weights alone,
    // and its E0 drops them.
    CHECK(plan::test::makespan(two_stages(false, 0)) == plan::test::approx(27));
    CHECK(plan::test::makespan(two_stages(false, 1)) == plan::test::approx(27));
  }

  TEST_CASE("what is loaded a task ahead is copied beside the task, one copy after the other") {
    // L0 0..3, L1 3..7, F0 3..4, L0 7..11, F1 7..8, B1 8..10, U1 10.5; stage 1 goes back 11..15, when the
    // copier is free, and E1 waits for it; R0 15..16, B0 18, U0 18.5, back 22.5.
    CHECK(to_text(two_stages(true, 1).programs.workers[0]) ==
          "L0 L1 F0.0 E0 L0 F1.0 B1.0 U1 E1 R0.0 B0.0 U0 E0");
    CHECK(plan::test::makespan(two_stages(true, 1)) == plan::test::approx(22.5));
    // A device that copies by itself gains nothing.
    CHECK(plan::test::makespan(two_stages(true, 0)) == plan::test::approx(27));
  }

  TEST_CASE("gradients and the optimizer's state are there with weights that are updated") {
    const MemoryPeak alone = simulate(two_stages(false, 0)).memory.front();
    CHECK(alone.weights == Bytes(10));
    CHECK(alone.peak == Bytes(10 + 10 + 20));
    // Two stages at a time: 1 while 0 runs forward, then 0 while 1 is updated, both with their state.
    const MemoryPeak ahead = simulate(two_stages(true, 0)).memory.front();
    CHECK(ahead.weights == Bytes(20));
    CHECK(ahead.peak == Bytes(2 * 40));
  }

  TEST_CASE("a worker that does not update a stage loads what the last update has left") {
    // Three stages on three workers: forwards 0, 1 on workers 0, 1, the fused 2 on worker 2, backwards 1, 0 on
    // workers 0, 1. F0 0..1, F1 1..2, F2 B2 2..5, B1 5..7, E1 7..12, B0 7..9, E0 on worker 1 9..14. Only then
    // has worker 0 the weights of the next step's F0, although it is free at 12.
    SimulationInput input = plan::test::equal_stages(program_set({"harmony-pp", {1, 1, 1}, 1}));
    REQUIRE(to_text(input.programs.workers[0]) == "L0 F0.0 E0 L1 R1.0 B1.0 U1 E1");
    for (StageCosts& stage : input.stages) stage.evict = Seconds(5);
    CHECK(chained_period(input).count() == plan::test::approx(14));
  }

  TEST_CASE("an overlapped all-reduce shows what the last backward does not hide") {
    // max(0, 3 - 1*2) = 1;  max(0, 3 - 0.5*2) = 2;  max(0, 3 - 0) = 3.
    CHECK(times(simulate(two_replicas(AllReduceMode::overlapped, 1)), 0) ==
          "F0.0 0-1, B0.0 1-3, AR0 3-4, U0 4-4.5");
    CHECK(times(simulate(two_replicas(AllReduceMode::overlapped, 0.5)), 0) ==
          "F0.0 0-1, B0.0 1-3, AR0 3-5, U0 5-5.5");
    CHECK(times(simulate(two_replicas(AllReduceMode::overlapped, 0)), 0) ==
          "F0.0 0-1, B0.0 1-3, AR0 3-6, U0 6-6.5");
  }

  TEST_CASE("a short all-reduce is hidden whole") {
    SimulationInput input = two_replicas(AllReduceMode::overlapped, 1);
    input.stages[0].all_reduce = Seconds(1.5);
    CHECK(times(simulate(input), 1) == "F0.1 0-1, B0.1 1-3, AR0 3-3, U0 3-3.5");
  }

  TEST_CASE("what is complete only at the end is not hidden") {
    SimulationInput input = two_replicas(AllReduceMode::overlapped, 1);
    input.stages[0].hideable = Seconds(0.5);  // 3 - 0.5 = 2.5 behind the backward
    CHECK(times(simulate(input), 0) == "F0.0 0-1, B0.0 1-3, AR0 3-5.5, U0 5.5-6");
    input.all_reduce_overlap = 0.5;  // 3 - 0.25
    CHECK(times(simulate(input), 1) == "F0.1 0-1, B0.1 1-3, AR0 3-5.75, U0 5.75-6.25");
    input.stages[0].hideable = Seconds(5);  // more than the backward: that of 2, half of it
    CHECK(times(simulate(input), 0) == "F0.0 0-1, B0.0 1-3, AR0 3-5, U0 5-5.5");
  }

  TEST_CASE("a blocking all-reduce takes its whole time, a free one none") {
    CHECK(times(simulate(two_replicas(AllReduceMode::blocking, 1)), 0) ==
          "F0.0 0-1, B0.0 1-3, AR0 3-6, U0 6-6.5");
    CHECK(times(simulate(two_replicas(AllReduceMode::free, 1)), 0) == "F0.0 0-1, B0.0 1-3, AR0 3-3, U0 3-3.5");
  }

  TEST_CASE("all wait for the last to come, and waiting is not busy") {
    SimulationInput input = two_replicas(AllReduceMode::overlapped, 1);
    input.micro_batch_scale = {1, 2};
    // Worker 1: F 0-2, B 2-6. The reduction needs gradients from both, so from max(3-2, 6-4) = 2 on: it could
    // end at 5, but the last gradient is there at 6.
    const SimulationResult result = simulate(input);
    CHECK(times(result, 0) == "F0.0 0-1, B0.0 1-3, AR0 6-6, U0 6-6.5");
    CHECK(times(result, 1) == "F0.1 0-2, B0.1 2-6, AR0 6-6, U0 6-6.5");
    CHECK(result.busy == std::vector<Seconds>{Seconds(3.5), Seconds(6.5)});
    // Free: worker 0 does not wait.
    input.all_reduce = AllReduceMode::free;
    CHECK(times(simulate(input), 0) == "F0.0 0-1, B0.0 1-3, AR0 3-3, U0 3-3.5");
  }

  TEST_CASE("a replica without micro-batches joins and delays nobody") {
    SimulationInput input = equal_stages(program_set({"gpipe", {2}, 1, WindowRule::win, {}}));
    input.stages[0].all_reduce = Seconds(3);
    CHECK(times(simulate(input), 1) == "AR0 3-4, U0 4-4");
  }

  TEST_CASE("reductions of one worker follow each other") {
    // Two copies of a pipeline of two stages per worker; AR takes 3 for each stage.
    SimulationInput input = equal_stages(written(
        {"F0.0 F1.0 B1.0 B0.0 AR0 AR1 U0 U1", "F0.1 F1.1 B1.1 B0.1 AR0 AR1 U0 U1"}, {{0, 1}, {0, 1}}, 2));
    for (StageCosts& stage : input.stages) stage.all_reduce = Seconds(3);
    // B1 2-4, B0 4-6. AR0 begins with B0 at 4, ends at 7; AR1 could have begun at 2 but follows in the list:
    // 7-10.
    CHECK(times(simulate(input), 0) ==
          "F0.0 0-1, F1.0 1-2, B1.0 2-4, B0.0 4-6, AR0 6-7, AR1 7-10, U0 10-10, U1 10-10");
  }

  TEST_CASE("in a stream the i-th all-reduce joins the i-th backward of all replicas") {
    SimulationInput input = equal_stages(program_set({"pipedream", {2}, 1, WindowRule::win, {}}, 4));
    input.stages[0].all_reduce = Seconds(3);
    input.all_reduce = AllReduceMode::blocking;
    input.micro_batch_scale = {1, 2, 1, 1};
    // Worker 1's first pair takes 6, so the first round ends at 9; then F 9-10, B 10-12, AR 12-15 on both.
    const std::string rest = "AR0 6-9, U0 9-9, F0.2 9-10, B0.2 10-12, AR0 12-15, U0 15-15";
    CHECK(times(simulate(input), 0) == "F0.0 0-1, B0.0 1-3, " + rest);
  }
}

}  // namespace
}  // namespace pp::plan

// Weights that come from the host and go back: what the copies take beside the worker's own operations, who
// waits for them, and what is held meanwhile.
#include "libplan/schedule/schedule.h"
#include "libplan/schedule/validate.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace swap_test {

using namespace pp;
using namespace pp::plan;

namespace {

/// One worker with two stages and one micro-batch.
SimulationInput two_stages(bool prefetch, double overlap) {
  ScheduleRequest request{"harmony-pp", {1}, 1};
  request.chunks_per_worker = 2;
  request.prefetch = prefetch;
  SimulationInput input = test::equal_stages(program_set(request));
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

}  // namespace

TEST_SUITE("libplan/simulate/swap") {
  TEST_CASE("what is loaded when it is needed is waited for, whoever copies it") {
    // L0 F0 E0 L1 F1 B1 U1 E1 L0 R0 B0 U0 E0: 3+1+0+4+1+2+0.5+4+4+1+2+0.5+4. The first L0 brings weights alone,
    // and its E0 drops them.
    CHECK(test::makespan(two_stages(false, 0)) == test::approx(27));
    CHECK(test::makespan(two_stages(false, 1)) == test::approx(27));
  }

  TEST_CASE("what is loaded a task ahead is copied beside the task, one copy after the other") {
    // L0 0..3, L1 3..7, F0 3..4, L0 7..11, F1 7..8, B1 8..10, U1 10.5; stage 1 goes back 11..15, when the
    // copier is free, and E1 waits for it; R0 15..16, B0 18, U0 18.5, back 22.5.
    CHECK(to_text(two_stages(true, 1).programs.workers[0]) ==
          "L0 L1 F0.0 E0 L0 F1.0 B1.0 U1 E1 R0.0 B0.0 U0 E0");
    CHECK(test::makespan(two_stages(true, 1)) == test::approx(22.5));
    // A device that copies by itself gains nothing.
    CHECK(test::makespan(two_stages(true, 0)) == test::approx(27));
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
    SimulationInput input = test::equal_stages(program_set({"harmony-pp", {1, 1, 1}, 1}));
    REQUIRE(to_text(input.programs.workers[0]) == "L0 F0.0 E0 L1 R1.0 B1.0 U1 E1");
    for (StageCosts& stage : input.stages) stage.evict = Seconds(5);
    CHECK(chained_period(input).count() == test::approx(14));
  }
}

}  // namespace swap_test

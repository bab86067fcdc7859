#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::equal_stages;
using test::times;
using test::written;

/// Two replicas, one micro-batch each: F 0-1, B 1-3; the all-reduce takes 3.
SimulationInput two_replicas(AllReduceMode mode, double overlap) {
  SimulationInput input = equal_stages(program_set({"gpipe", {2}, 2, WindowRule::win, {}}));
  input.stages[0].all_reduce = Seconds(3);
  input.stages[0].update = Seconds(0.5);
  input.all_reduce = mode;
  input.all_reduce_overlap = overlap;
  return input;
}

TEST_SUITE("libplan/simulate/all reduce") {
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

// A parameter that two stages share: each holds a copy, and ARg adds up their gradients.
#include "libplan/schedule/program_index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan::tied_test {
namespace {

using test::equal_stages;
using test::error_of;
using test::times;
using test::written;

/// Stages 0 and 1, the first on two workers, share a parameter. One micro-batch for each replica.
ProgramSet shared(const std::string& last = "F1.0 F1.1 B1.0 B1.1 ARg0 U1") {
  ProgramSet set = written({"F0.0 B0.0 AR0 ARg0 U0", "F0.1 B0.1 AR0 ARg0 U0", last}, {{0, 1}, {2}}, 2);
  set.tied = {{StageId{0}, StageId{1}}};
  return set;
}

std::string refusal(const ProgramSet& set) {
  return error_of([&] { validate(set); });
}

TEST_SUITE("libplan/schedule/tied") {
  TEST_CASE("every worker of the stages lists the group's reduction behind its backwards and AR") {
    CHECK(refusal(shared()) == "");
    CHECK(refusal(shared("F1.0 F1.1 B1.0 B1.1 U1")) ==
          "worker 2: ARg0 is listed 0 times; every worker of the group's stages lists it once, in front of its "
          "first U");
    CHECK(refusal(shared("F1.0 F1.1 B1.0 B1.1 U1 ARg0")) ==
          "worker 2, operation 4 (U1): the ARg of every group that shares a parameter of stage 1 must come "
          "first");
    ProgramSet early = shared();
    early.workers[0] = parse_program("F0.0 B0.0 ARg0 AR0 U0");
    early.workers[1] = parse_program("F0.1 B0.1 ARg0 AR0 U0");
    CHECK(refusal(early) == "worker 0, operation 2 (ARg0): AR0 must come first");
  }

  TEST_CASE("in front of a backward it is refused, or blocks what that backward feeds") {
    ProgramSet set = written({"F0.0 F0.1 B0.0 ARg0 B0.1 U0", "F1.0 F1.1 B1.0 B1.1 ARg0 U1"}, {{0}, {1}}, 2);
    set.tied = {{StageId{0}, StageId{1}}};
    CHECK(refusal(set) ==
          "worker 0, operation 3 (ARg0): it comes after 1 of the 2 backwards that it needs; move it behind the "
          "last");
    CHECK(refusal(shared("F1.0 F1.1 B1.0 ARg0 B1.1 U1")) ==
          "plan: deadlock after 6 of 16 operations\n"
          "  worker 0: next AR0 needs AR0 (worker 1)\n"
          "  worker 1: next B0.1 needs B1.1 (worker 2)\n"
          "  worker 2: next ARg0 needs ARg0 (worker 0)");
  }

  TEST_CASE("a group names several stages that exist, in a step with a flush") {
    ProgramSet set = shared();
    set.tied = {{StageId{1}, StageId{0}}};
    CHECK(refusal(set) ==
          "tied group 0: list the stages that share the parameter, at least two, in ascending order");
    set.tied = {{StageId{0}, StageId{2}}};
    CHECK(refusal(set) == "tied group 0: stage 2 does not exist; there are 2 stages, from 0");
    set.tied.clear();
    CHECK(refusal(set) ==
          "worker 0, operation 3 (ARg0): group 0 does not exist; there are 0 tied groups, from 0");
    set = shared();
    set.synchronous = false;
    CHECK(refusal(set) ==
          "tied group 0: copies drift apart without a flush; put all users of the parameter in one stage");
    set = written({"F0.0 B0.0 ARg0 U0", "F1.0 B1.0 U1", "F2.0 B2.0 U2"}, {{0}, {1}, {2}}, 1);
    set.tied = {{StageId{1}, StageId{2}}};
    CHECK(refusal(set) ==
          "worker 0, operation 2 (ARg0): this worker holds no stage of the group; leave it out");
  }

  TEST_CASE("the reduction joins all workers of its stages, and every copy of a chained step its own") {
    const ProgramIndex index = index_programs(shared());
    REQUIRE(index.groups() == 2);
    // AR0 of workers 0 and 1 are operations 2 and 7; ARg0 are 3, 8 and, on worker 2, 14.
    CHECK(index.group_members == std::vector<int>{2, 7, 3, 8, 14});
    CHECK(index.ops[14].stage == StageId{1});
    SimulationInput input = equal_stages(shared());
    CHECK(chained_period(input) > Seconds(0));
  }

  TEST_CASE("all wait for the later last backward, and the reduction follows that of the stage") {
    SimulationInput input = equal_stages(shared());
    input.stages[0].all_reduce = Seconds(3);
    input.tied_all_reduce = {Seconds(5)};
    input.all_reduce = AllReduceMode::blocking;
    // F 1, B 2: worker 2 runs F1.0 1-2, F1.1 2-3, B1.0 3-5, B1.1 5-7; B0.0 5-7 and B0.1 7-9, so AR0 9-12, ARg0
    // 12-17.
    CHECK(times(simulate(input), 0) == "F0.0 0-1, B0.0 5-7, AR0 9-12, ARg0 12-17, U0 17-17");
    CHECK(times(simulate(input), 2) == "F1.0 1-2, F1.1 2-3, B1.0 3-5, B1.1 5-7, ARg0 12-17, U1 17-17");
    // Overlapped, the share of the last backward that hides it is that of the slowest: from 7 on AR0 runs (to
    // 10), then ARg0 to 15.
    input.all_reduce = AllReduceMode::overlapped;
    CHECK(times(simulate(input), 0) == "F0.0 0-1, B0.0 5-7, AR0 9-10, ARg0 10-15, U0 15-15");
  }
}

}  // namespace
}  // namespace pp::plan::tied_test

// What the validator refuses, whose micro-batches those of replicas are, and parameters that two stages share,
// of which each holds a copy.
#include "libplan/schedule/validate.h"

#include "libplan/schedule/placement.h"
#include "libplan/schedule/program_index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan::validate_test {
namespace {

using test::equal_stages;
using test::error_of;
using test::straight;
using test::times;
using test::written;

std::string refusal(const ProgramSet& set) {
  return error_of([&] { validate(set); });
}

const std::vector<std::vector<int>> kTwoStages{{0}, {1}};

/// What the two checks of a plan say; the first one accepts these sets.
std::string owner_refusal(const ProgramSet& set) {
  CHECK(error_of([&] { validate(set); }).empty());
  return error_of([&] { check_owners(set); });
}

ProgramSet streamed(const std::vector<std::string>& programs, int micro_batches) {
  ProgramSet set = written(programs, {{0, 1}}, micro_batches);
  set.synchronous = false;
  return set;
}

/// Stages 0 and 1, the first on two workers, share a parameter. One micro-batch for each replica.
ProgramSet shared(const std::string& last = "F1.0 F1.1 B1.0 B1.1 ARg0 U1") {
  ProgramSet set = written({"F0.0 B0.0 AR0 ARg0 U0", "F0.1 B0.1 AR0 ARg0 U0", last}, {{0, 1}, {2}}, 2);
  set.tied = {{StageId{0}, StageId{1}}};
  return set;
}

TEST_SUITE("libplan/schedule/validate") {
  TEST_CASE("an operation on the wrong worker, stage or micro-batch is named") {
    CHECK(refusal(written({"F0.0 F1.0 B0.0 U0", "B1.0 U1"}, kTwoStages, 1)) ==
          "worker 0, operation 1 (F1.0): stage 1 is not on this worker; move the operation to worker 1");
    CHECK(refusal(written({"F0.0 B0.0 U0", "F1.0 B1.0 U2"}, kTwoStages, 1)) ==
          "worker 1, operation 2 (U2): stage 2 does not exist; there are 2 stages, from 0");
    CHECK(refusal(written({"F0.0 B0.0 U0", "F1.0 F1.1 B1.0 U1"}, kTwoStages, 1)) ==
          "worker 1, operation 1 (F1.1): micro-batch 1 does not exist; there are 1, from 0");
    CHECK(refusal(written({"F0.0 B0.0 AR0 U0", "AR0 U0", "F0.0"}, {{0, 1}}, 1)) ==
          "worker 2, operation 0 (F0.0): stage 0 is not on this worker; move the operation to workers 0, 1");
  }

  TEST_CASE("stages without workers, with unknown or repeated ones are refused") {
    CHECK(refusal(written({"U0"}, {{0}, {}}, 1)) == "stage 1 has no worker; give it at least one");
    CHECK(refusal(written({"U0"}, {{1}}, 1)) == "stage 0 is on worker 1, but the workers are 0 to 0");
    CHECK(refusal(written({"U0"}, {{0, 0}}, 1)) == "stage 0 names worker 0 twice; name it once");
    CHECK(refusal(written({"U0"}, {}, 1)) == "there are no stages; a set of programs needs at least one");
    CHECK(refusal(written({"U0"}, {{0}}, 0)) == "micro_batches = 0; a set of programs needs at least one");
  }

  TEST_CASE("what is missing is named with its worker") {
    CHECK(refusal(written({"F0.0 B0.0 B0.1 U0"}, {{0}}, 2)) == "stage 0: F0.1 is missing; list it on worker 0");
    CHECK(refusal(written({"AR0 U0", "AR0 U0"}, {{0, 1}}, 1)) ==
          "stage 0: F0.0 is missing; list it on worker 0 or another of the stage's");
    CHECK(refusal(written({"F0.0 F0.1 B0.0 U0"}, {{0}}, 2)) ==
          "worker 0: B0.1 is missing; F0.1 needs it, or I and W, on the same worker");
    CHECK(refusal(written({"F0.0 I0.0 U0"}, {{0}}, 1)) ==
          "worker 0: W0.0 is missing; I0.0 leaves the weight gradient to it");
    CHECK(refusal(written({"F0.0 B0.0"}, {{0}}, 1)) ==
          "worker 0: U0 is listed 0 times; a synchronous program lists it once");
    CHECK(refusal(written({"F0.0 B0.0 AR0 U0", "U0"}, {{0, 1}}, 1)) ==
          "worker 1: AR0 is listed 0 times; stage 0 has 2 workers, so each U0 needs one before it");
  }

  TEST_CASE("what is there twice is named with both places") {
    CHECK(refusal(written({"F0.0 B0.0 F0.0 U0"}, {{0}}, 1)) ==
          "worker 0, operation 2 (F0.0): operation 0 is F0.0 already; list it once");
    CHECK(refusal(written({"F0.0 B0.0 I0.0 W0.0 U0"}, {{0}}, 1)) ==
          "worker 0, operation 2 (I0.0): operation 1 is B0.0 and computes the same gradient; list B alone, or "
          "I and W");
    CHECK(refusal(written({"F0.0 B0.0 W0.0 U0"}, {{0}}, 1)) ==
          "worker 0, operation 2 (W0.0): B0.0 computes this gradient already; list B alone, or I and W");
    CHECK(refusal(written({"F0.0 B0.0 U0 U0"}, {{0}}, 1)) ==
          "worker 0: U0 is listed 2 times; a synchronous program lists it once");
    CHECK(refusal(written({"F0.0 B0.0 AR0 U0"}, {{0}}, 1)) ==
          "worker 0: AR0 is listed, but stage 0 has one worker; leave it out");
  }

  TEST_CASE("a micro-batch stays with the worker of its forward") {
    CHECK(refusal(written({"F0.0 F0.1 B0.0 B0.1 AR0 U0", "B0.1 AR0 U0"}, {{0, 1}}, 2)) ==
          "worker 1, operation 0 (B0.1): F0.1 runs on worker 0; a micro-batch stays with the worker of its "
          "forward");
  }

  TEST_CASE("a micro-batch on all workers of a stage is split, on some of them it is an error") {
    CHECK(refusal(written({"F0.0 B0.0 AR0 U0", "F0.0 B0.0 AR0 U0"}, {{0, 1}}, 1)) == "");
    CHECK(refusal(written({"F0.0 B0.0 AR0 U0", "F0.0 B0.0 AR0 U0", "AR0 U0"}, {{0, 1, 2}}, 1)) ==
          "stage 0: F0.0 is listed by 2 of 3 workers; list it on one, or on all to split the micro-batch");
  }

  TEST_CASE("slices of split micro-batches depend on each other where they overlap") {
    // Two slices [0, 1/2), [1/2, 1) feed three of a third each: the middle third needs both, the others one.
    const ProgramSet set = written(
        {"F0.0 B0.0 AR0 U0", "F0.0 B0.0 AR0 U0", "F1.0 B1.0 AR1 U1", "F1.0 B1.0 AR1 U1", "F1.0 B1.0 AR1 U1"},
        {{0, 1}, {2, 3, 4}}, 1);
    CHECK(refusal(set) == "");
    const ProgramIndex index = index_programs(set);
    const auto producers = [&](int id) {
      std::vector<int> ids;
      index.for_each_producer(id, [&](int producer, int) { ids.push_back(producer); });
      return ids;
    };
    CHECK(producers(8) == std::vector<int>{0});
    CHECK(producers(12) == std::vector<int>{0, 4});
    CHECK(producers(16) == std::vector<int>{4});
    CHECK(overlap({0, 2}, {1, 3}) == doctest::Approx(1.0 / 6));
  }

  TEST_CASE("a deadlock names every worker's next operation and what it waits for") {
    // Worker 0 wants B0.0 before F0.1, worker 1 wants F1.1 before B1.0; F0.0 and F1.0 have run.
    CHECK(refusal(written({"F0.0 B0.0 F0.1 B0.1 U0", "F1.0 F1.1 B1.0 B1.1 U1"}, kTwoStages, 2)) ==
          "plan: deadlock after 2 of 10 operations: worker 0 in receive of B0.0 and worker 1 in receive of "
          "F1.1 wait for each "
          "other\n"
          "  worker 0: next receive of B0.0 needs send of B1.0 (worker 1)\n"
          "  worker 1: next receive of F1.1 needs send of F0.1 (worker 0)");
    // W before its I can never start; worker 2 has done F, B, U; F0.0 and F1.0 have run too.
    CHECK(refusal(written({"F0.0 B0.0 U0", "F1.0 W1.0 I1.0 U1", "F2.0 B2.0 U2"}, {{0}, {1}, {2}}, 1)) ==
          "plan: deadlock after 5 of 10 operations: worker 1 in weight gradient of W1.0 waits for what stands "
          "behind it\n"
          "  worker 0: next receive of B0.0 needs send of I1.0 (worker 1)\n"
          "  worker 1: next weight gradient of W1.0 needs input gradient of I1.0 (worker 1)\n"
          "  worker 2: finished");
  }

  TEST_CASE("workers that list their all-reduces in different orders wait for each other") {
    // Both workers hold both stages; worker 0 runs micro-batch 0, worker 1 micro-batch 1. 4 + 4 operations run.
    CHECK(refusal(written({"F0.0 F1.0 B1.0 B0.0 AR0 AR1 U0 U1", "F0.1 F1.1 B1.1 B0.1 AR1 AR0 U0 U1"},
                          {{0, 1}, {0, 1}}, 2)) ==
          "plan: deadlock after 8 of 16 operations: worker 0 in reduce of AR0 and worker 1 in reduce of AR1 "
          "wait for each "
          "other\n"
          "  worker 0: next reduce of AR0 needs reduce of AR0 (worker 1)\n"
          "  worker 1: next reduce of AR1 needs reduce of AR1 (worker 0)");
  }

  TEST_CASE("a window that grows downstream deadlocks") {
    const ScheduleRequest request{"1f1b", {1, 1}, 4, WindowRule::explicit_list, {1, 2}};
    CHECK(refusal(program_set(request)) ==
          "plan: deadlock after 2 of 18 operations: worker 0 in receive of B0.0 and worker 1 in receive of "
          "F1.1 wait for each "
          "other\n"
          "  worker 0: next receive of B0.0 needs send of B1.0 (worker 1)\n"
          "  worker 1: next receive of F1.1 needs send of F0.1 (worker 0)");
  }

  TEST_CASE("an update before its last backward or its all-reduce is out of order") {
    CHECK(refusal(written({"F0.0 B0.0 U0 F0.1 B0.1"}, {{0}}, 2)) ==
          "worker 0, operation 2 (U0): it comes after 1 of the 2 backwards that it needs; move it behind the "
          "last");
    CHECK(refusal(written({"F0.0 I0.0 U0 W0.0"}, {{0}}, 1)) ==
          "worker 0, operation 2 (U0): it comes after 0 of the 1 backwards that it needs; move it behind the "
          "last");
    CHECK(refusal(written({"F0.0 AR0 B0.0 U0", "AR0 U0"}, {{0, 1}}, 1)) ==
          "worker 0, operation 1 (AR0): it comes after 0 of the 1 backwards that it needs; move it behind the "
          "last");
    CHECK(refusal(written({"F0.0 B0.0 U0 AR0", "AR0 U0"}, {{0, 1}}, 1)) ==
          "worker 0, operation 2 (U0): AR0 must come first");
  }

  TEST_CASE("asynchronous programs update after every backward") {
    ProgramSet set = written({"F0.0 F0.1 B0.0 U0 B0.1 U0"}, {{0}}, 2);
    set.synchronous = false;
    CHECK(refusal(set) == "");
    set.workers[0] = parse_program("F0.0 F0.1 B0.0 B0.1 U0 U0");
    CHECK(refusal(set) == "worker 0, operation 3 (B0.1): U0 of the backward before it must come first");
    set.workers[0] = parse_program("F0.0 F0.1 B0.0 U0 B0.1");
    CHECK(refusal(set) == "worker 0: U0 is listed 1 time; it follows each of the 2 backwards");
    set.backwards_per_update = 2;
    set.workers[0] = parse_program("F0.0 F0.1 B0.0 U0 B0.1");
    CHECK(refusal(set) ==
          "worker 0, operation 3 (U0): it comes after 1 of the 2 backwards that it needs; move it behind the "
          "last");
    set.workers[0] = parse_program("F0.0 F0.1 B0.0 B0.1 U0");
    CHECK(refusal(set) == "");
  }

  TEST_CASE("an asynchronous replica without a partner for its last all-reduce is refused") {
    // J = 3 on two replicas: worker 0 has two backwards, worker 1 one.
    CHECK(refusal(program_set({"pipedream", {2, 1}, 1, WindowRule::win, {}}, 3)) ==
          "worker 0, operation 6 (AR0): not every worker of stage 0 lists as many all-reduces; give all the "
          "same number");
  }

  TEST_CASE("skips are dependencies in both directions and lead to later stages") {
    ProgramSet set = written({"F0.0 B0.0 U0", "F1.0 B1.0 U1", "F2.0 B2.0 U2"}, {{0}, {1}, {2}}, 1);
    set.skips = {{StageId{0}, StageId{2}}};
    CHECK(refusal(set) == "");
    const ProgramIndex index = index_programs(set);
    CHECK(index.dependencies == std::vector<Dependency>{{0, 1}, {1, 2}, {0, 2}});
    std::vector<std::pair<int, int>> needed_by_first_backward;  // id 1 is B0.0
    index.for_each_producer(1, [&](int id, int edge) { needed_by_first_backward.emplace_back(id, edge); });
    CHECK(needed_by_first_backward == std::vector<std::pair<int, int>>{{0, kNone}, {4, 0}, {7, 2}});
    set.skips = {{StageId{2}, StageId{0}}};
    CHECK(refusal(set) == "skip from stage 2 to stage 0: it must lead to a later one of the 3 stages");
  }

  TEST_CASE("a recomputed micro-batch runs its backward after R") {
    CHECK(refusal(written({"F0.0 R0.0 B0.0 U0"}, {{0}}, 1)) == "");
    CHECK(
        refusal(written({"F0.0 B0.0 R0.0 U0"}, {{0}}, 1)) ==
        "plan: deadlock after 1 of 4 operations: worker 0 in backward of B0.0 waits for what stands behind it\n"
        "  worker 0: next backward of B0.0 needs recompute of R0.0 (worker 0)");
  }

  TEST_CASE("in-flight peaks count W, not I, and chunks as parts of a worker's share") {
    CHECK(peak_in_flight(parse_program("F0.0 F0.1 B0.0 F0.2 B0.1 B0.2 U0"), 1) == 2);
    CHECK(peak_in_flight(parse_program("F0.0 I0.0 F0.1 I0.1 W0.0 W0.1 U0"), 1) == 2);
    CHECK(peak_in_flight(parse_program("F0.0 F0.1 F3.0 B3.0 F3.1 B3.1 B0.0 B0.1"), 2) == 1.5);
    CHECK(peak_in_flight({}, 1) == 0);
  }

  TEST_CASE("whatever one worker runs is accepted: any replicas' order, and Chimera's copies") {
    CHECK(owner_refusal(straight("1f1b", 3, 4)) == "");
    CHECK(owner_refusal(straight("chimera", 4, 8)) == "");
    CHECK(owner_refusal(program_set({.name = "gpipe", .replicas = {3, 1}, .micro_batches = 7})) == "");
    CHECK(owner_refusal(program_set({.name = "pipedream", .replicas = {2, 3, 1}}, 12)) == "");
    CHECK(owner_refusal(written({"F0.0 F0.1 B0.0 B0.1 AR0 U0", "F0.2 B0.2 AR0 U0"}, {{0, 1}}, 3)) == "");
  }

  TEST_CASE("a micro-batch that all replicas list is refused by the second worker's operation") {
    CHECK(
        owner_refusal(written({"F0.0 B0.0 F0.1 B0.1 AR0 U0", "F0.1 B0.1 AR0 U0"}, {{0, 1}}, 2)) ==
        "worker 1, operation 0 (F0.1): worker 0 runs this micro-batch; replicas that split one cannot be run: "
        "list it on one worker");
    CHECK(
        owner_refusal(program_set({.name = "dapple-pa", .replicas = {2, 1}, .micro_batches = 2})) ==
        "worker 1, operation 0 (F0.0): worker 0 runs this micro-batch; replicas that split one cannot be run: "
        "list it on one worker");
  }

  TEST_CASE("copies of two stages on the same workers share nothing either") {
    CHECK(owner_refusal(written({"F0.0 F1.0 B1.0 B0.0 AR0 AR1 U0 U1", "F0.0 F1.0 B1.0 B0.0 AR0 AR1 U0 U1"},
                                {{0, 1}, {0, 1}}, 1))
              .starts_with("worker 1, operation 0 (F0.0): worker 0 runs this micro-batch"));
  }

  TEST_CASE("workers of a stream take turns, in ascending order") {
    // Updates follow each backward: four micro-batches on two replicas, two rounds.
    CHECK(owner_refusal(
              streamed({"F0.0 B0.0 AR0 U0 F0.2 B0.2 AR0 U0", "F0.1 B0.1 AR0 U0 F0.3 B0.3 AR0 U0"}, 4)) == "");
    CHECK(owner_refusal(
              streamed({"F0.1 B0.1 AR0 U0 F0.3 B0.3 AR0 U0", "F0.0 B0.0 AR0 U0 F0.2 B0.2 AR0 U0"}, 4)) == "");
    CHECK(owner_refusal(
              streamed({"F0.0 B0.0 AR0 U0 F0.1 B0.1 AR0 U0", "F0.2 B0.2 AR0 U0 F0.3 B0.3 AR0 U0"}, 4)) ==
          "worker 0, operation 4 (F0.1): workers of a stream take turns, in ascending order: F0.2 comes here");
    CHECK(owner_refusal(
              streamed({"F0.2 B0.2 AR0 U0 F0.0 B0.0 AR0 U0", "F0.1 B0.1 AR0 U0 F0.3 B0.3 AR0 U0"}, 4)) ==
          "worker 0, operation 0 (F0.2): workers of a stream take turns, in ascending order: F0.0 comes here");
    CHECK(owner_refusal(
              streamed({"F0.0 F0.2 B0.2 AR0 U0 B0.0 AR0 U0", "F0.1 F0.3 B0.1 AR0 U0 B0.3 AR0 U0"}, 4)) ==
          "worker 0, operation 2 (B0.2): workers of a stream take turns, in ascending order: B0.0 comes here");
  }

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
          "plan: deadlock after 6 of 16 operations: worker 0 in reduce of AR0, worker 1 in receive of B0.1 and "
          "worker 2 in tie "
          "of ARg0 wait for each other\n"
          "  worker 0: next reduce of AR0 needs reduce of AR0 (worker 1)\n"
          "  worker 1: next receive of B0.1 needs send of B1.1 (worker 2)\n"
          "  worker 2: next tie of ARg0 needs tie of ARg0 (worker 0)");
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
}  // namespace pp::plan::validate_test

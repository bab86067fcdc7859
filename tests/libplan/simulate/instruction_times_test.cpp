// What the instructions of a step take: they add up to it, and name what a worker waits in.
#include "libplan/simulate/instruction_times.h"

#include <map>
#include <sstream>

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan::instruction_times_test {
namespace {

using test::equal_stages;
using test::straight;

/// `forward 2, backward 4`: of one worker.
std::string times_of(const std::vector<InstructionTime>& all, int worker) {
  std::ostringstream text;
  for (const InstructionTime& one : all) {
    if (one.worker != WorkerId{worker}) continue;
    text << (text.tellp() > 0 ? ", " : "") << name_of(one.kind) << ' ' << one.time.count();
  }
  return text.str();
}

double sum(const std::vector<InstructionTime>& all, int worker) {
  double sum = 0;
  for (const InstructionTime& one : all) sum += one.worker == WorkerId{worker} ? one.time.count() : 0;
  return sum;
}

TEST_SUITE("libplan/simulate/instruction_times") {
  TEST_CASE("a worker waits in what receives") {
    // Two stages, F = 1, B = 2. Worker 0 runs F 0-2 and waits until 5 for B1.0; worker 1 ends at 7 and waits
    // for F0.0 of the next step, which ends at 10.
    const auto all = instruction_times(equal_stages(straight("gpipe", 2, 2)), 1);
    CHECK(times_of(all, 0) == "receive 3, forward 2, backward 4");
    CHECK(times_of(all, 1) == "receive 3, forward 2, backward 4");
  }

  TEST_CASE("messages that ask time of devices are told from the passes around them") {
    SimulationInput input = equal_stages(straight("1f1b", 3, 4));
    test::link_all(input, {.message_cost = Seconds(0.25)});
    const auto all = instruction_times(input, 1);
    for (int worker = 0; worker < 3; ++worker)
      CHECK(sum(all, worker) == test::approx(chained_period(input).count()));
    std::map<InstructionKind, double> second;
    for (const InstructionTime& one : all)
      if (one.worker == WorkerId{1}) second[one.kind] += one.time.count();
    CHECK(second[InstructionKind::forward] == test::approx(4));
    CHECK(second[InstructionKind::backward] == test::approx(8));
    CHECK(second[InstructionKind::send] == test::approx(8 * 0.25));
  }

  TEST_CASE("a replica waits for the other in the sum") {
    // Three micro-batches on two replicas: worker 0 has two, worker 1 one and waits 3 s.
    SimulationInput input = equal_stages(program_set({"gpipe", {2}, 3, WindowRule::win, {}}));
    input.all_reduce = AllReduceMode::blocking;
    input.stages[0].all_reduce = Seconds(0.5);
    const auto all = instruction_times(input, 1);
    CHECK(times_of(all, 0) == "forward 2, backward 4, reduce 0.5");
    CHECK(times_of(all, 1) == "forward 1, backward 2, reduce 3.5");
  }

  TEST_CASE("of a stream a mini-batch is told") {
    SimulationInput input = equal_stages(program_set({"pipedream", {1, 1}, 1, WindowRule::win, {}}, 30));
    input.stages[0].update = Seconds(0.5);
    const auto all = instruction_times(input, 30);
    CHECK(sum(all, 0) == test::approx(steady_period(input).count()));
    CHECK(sum(all, 1) == test::approx(steady_period(input).count()));
  }

  TEST_CASE("an instruction stands once before the pass that hides a sum, also around the end of a body") {
    const std::vector<StagePorts> none(1);
    const Lowering lowering{.ports = none, .hides_sums = {true}};
    const Stream stream{parse_program("F0.0 F0.1 B0.0 AR0 U0"), parse_program("F0.2 AR0 U0 B0.1"), 1};
    CHECK(listing(stream, lower(stream, lowering)) ==
          "F0.0: forward\nF0.1: forward\nB0.0: begin reduce, backward\nAR0: reduce\nU0: update\n"
          "F0.2: forward\nAR0: reduce\nU0: update\nB0.1: begin reduce, backward\n");
    const Stream step = steps_of(parse_program("F0.0 I0.0 F0.1 I0.1 W0.0 W0.1 AR0 U0"), 2);
    const InstructionLists lists = lower(step, lowering);
    CHECK(lists[4].size() == 1);
    CHECK(lists[5].front().kind == InstructionKind::begin_reduce);
  }
}

}  // namespace
}  // namespace pp::plan::instruction_times_test

// Chained steps in one run against as many runs of their own.
#include "libplan/simulate/event_loop.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/index.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/search/instances.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

/// Every list `steps` times, micro-batches counted on.
SimulationInput repeated(const SimulationInput& input, int steps) {
  SimulationInput result = input;
  result.programs.micro_batches *= steps;
  for (Program& program : result.programs.workers) {
    const Program step = program;
    for (int i = 1; i < steps; ++i) {
      for (Op op : step) {
        if (has_micro_batch(op.kind)) op.micro_batch += i * input.programs.micro_batches;
        program.push_back(op);
      }
    }
  }
  return result;
}

SimulationInput random_input(test::Random& random) {
  static const std::vector<std::string> kNames{"gpipe", "1f1b", "zb-h1"};
  const std::string& name = kNames[at(random.integer(0, 2))];
  std::vector<int> replicas(at(random.integer(2, 4)), 1);
  if (name != "zb-h1") replicas.front() = random.integer(1, 3);
  SimulationInput input =
      test::equal_stages(program_set({name, replicas, random.integer(1, 5), WindowRule::win, {}}));
  const int workers = static_cast<int>(input.programs.workers.size());
  for (StageCosts& stage : input.stages) {
    for (Seconds* time : {&stage.forward, &stage.input_gradient, &stage.weight_gradient, &stage.update})
      *time = Seconds(random.integer(1, 8));
    stage.backward = stage.input_gradient + stage.weight_gradient;
    stage.all_reduce = Seconds(random.integer(0, 5));
  }
  for (int s = 0; s + 1 < static_cast<int>(replicas.size()); ++s) {
    input.edges.push_back(
        {StageId{s}, StageId{s + 1}, Bytes(random.integer(0, 8000)), Bytes(random.integer(0, 8000))});
  }
  test::link_all(input, {BytesPerSecond(1000), Seconds(random.integer(0, 1))});
  // Replicas that do not wait for each other's gradients are in different steps at times.
  if (random.integer(0, 1) == 0) input.all_reduce = AllReduceMode::free;
  if (random.integer(0, 2) == 0) {
    for (int w = 0; w < workers; ++w) input.cards.push_back(w / 2);
  }
  return input;
}

TEST_SUITE("libplan/simulate/chain") {
  TEST_CASE(
      "one run of three steps gives the period of separate runs, where no message waits for a later step") {
    test::Random random(7);
    int apart = 0;
    constexpr int kRounds = 3000;
    for (int round = 0; round < kRounds; ++round) {
      CAPTURE(round);
      const SimulationInput input = random_input(random);
      const SimulationInput three = repeated(input, 3);
      const Seconds last = simulate(three).makespan;
      // Whole seconds, but for parts of them where all-reduces share a card.
      const Seconds apart_by = last - simulate(repeated(input, 2)).makespan;
      REQUIRE(chained_period(input).count() == doctest::Approx(apart_by.count()).epsilon(1e-12));
      // The first of the chained steps is the step by itself, to the bit.
      const ChainedSimulation both = simulate_chained(input);
      const SimulationResult alone = simulate(input, Events::unsorted);
      REQUIRE(both.period == chained_period(input));
      REQUIRE(both.first.makespan == alone.makespan);
      REQUIRE(both.first.busy == alone.busy);
      REQUIRE(both.first.messages == alone.messages);
      REQUIRE(both.first.memory == alone.memory);
      const ChainTimes times = run_chain(index_simulation(three), three, 3, Messages::drop);
      REQUIRE(times.ends.back() == last.count());
      if (!times.apart) continue;
      ++apart;
      for (const int steps : {1, 2})
        REQUIRE(times.ends[at(steps) - 1] == simulate(repeated(input, steps)).makespan.count());
    }
    CHECK(apart > kRounds / 4);
    CHECK(apart < kRounds);  // some steps do meet at a port
  }
}

}  // namespace
}  // namespace pp::plan

#include "libplan/simulate/lower_bound.h"

#include <algorithm>
#include <random>

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::approx;
using test::equal_stages;
using test::makespan;
using test::straight;
using test::written;

/// The other side of Carlier's theorem: the largest least head + sum of durations + least tail over all
/// subsets.
double largest_subset(const std::vector<Job>& jobs) {
  double best = 0;
  for (unsigned subset = 1; subset < (1U << jobs.size()); ++subset) {
    double head = 1e9;
    double sum = 0;
    double tail = 1e9;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if ((subset >> j & 1U) == 0) continue;
      head = std::min(head, jobs[j].head);
      sum += jobs[j].duration;
      tail = std::min(tail, jobs[j].tail);
    }
    best = std::max(best, head + sum + tail);
  }
  return best;
}

class Dice {
 public:
  int below(int limit) { return static_cast<int>(bits_() % static_cast<std::uint64_t>(limit)); }

 private:
  std::mt19937_64 bits_{5};
};

/// Random times, and links with latency, bandwidth, what asks time of the devices, or none of it.
void randomise(SimulationInput& input, Dice& dice) {
  for (StageCosts& costs : input.stages) {
    for (Seconds* time : {&costs.forward, &costs.input_gradient, &costs.weight_gradient, &costs.recompute,
                          &costs.update, &costs.all_reduce}) {
      *time = Seconds(dice.below(6));
    }
    costs.backward = costs.input_gradient + costs.weight_gradient;
  }
  for (int s = 0; s + 1 < static_cast<int>(input.stages.size()); ++s) {
    input.edges.push_back({StageId{s}, StageId{s + 1}, Bytes(dice.below(300)), Bytes(dice.below(300))});
  }
  Link link{BytesPerSecond(100.0 * dice.below(2)), Seconds(0.5 * dice.below(3))};
  if (dice.below(2) == 0) {
    link.message_cost = Seconds(0.5 * dice.below(4));
    link.overlap = 0.25 * dice.below(5);
    link.duplex = dice.below(2) == 0 ? Duplex::half : Duplex::full;
  }
  test::link_all(input, link);
  input.all_reduce_overlap = 0.5 * dice.below(3);
  for (int m = 0; m < input.programs.micro_batches; ++m) {
    input.micro_batch_scale.push_back(0.5 + 0.25 * dice.below(3));
  }
}

TEST_SUITE("libplan/simulate/lower_bound") {
  TEST_CASE("one machine: the longest tail runs first and interrupts") {
    // The first job runs 0-1, the second 1-3 and its tail ends at 8, the first 3-6 and its tail at 7.
    CHECK(one_machine_bound(std::vector<Job>{{0, 4, 1}, {1, 2, 5}}) == 8);
    // Nothing to do until 3.
    CHECK(one_machine_bound(std::vector<Job>{{3, 1, 0}, {7, 1, 2}}) == 10);
    CHECK(one_machine_bound({}) == 0);
  }

  TEST_CASE("one machine equals the best subset bound on random jobs") {
    Dice dice;
    for (int round = 0; round < 2000; ++round) {
      std::vector<Job> jobs;
      for (int j = dice.below(7); j >= 0; --j) {
        jobs.push_back({1.0 * dice.below(12), 1.0 * dice.below(6), 1.0 * dice.below(12)});
      }
      REQUIRE(one_machine_bound(jobs) == largest_subset(jobs));
    }
  }

  TEST_CASE("two stages, two micro-batches: the last worker decides") {
    // Worker 1 starts at 1 (F0.0), works 2*(1 + 2) and a backward of 2 must follow on worker 0: 9, as 1f1b
    // takes. Worker 0 needs 2 (forwards), waits for the first B1 until 4, then 4: 8.
    CHECK(makespan_bound(equal_stages(straight("1f1b", 2, 2))).count() == 9);
    CHECK(makespan_bound(equal_stages(straight("gpipe", 2, 2))).count() == 9);  // whatever the order
  }

  TEST_CASE("split backwards: the weight gradients fill the end") {
    // Worker 1: F I F I from 1 to 5, then I0.1 and W0.1: 7. Worker 0: F F -, I at 3, then I W W: 0-2, 3-7.
    // Worker 1's six operations end at 7, too.
    const auto set =
        written({"F0.0 F0.1 I0.0 W0.0 I0.1 W0.1 U0", "F1.0 I1.0 F1.1 I1.1 W1.0 W1.1 U1"}, {{0}, {1}}, 2);
    CHECK(makespan_bound(equal_stages(set)).count() == 7);
    CHECK(makespan(equal_stages(set)) == 7);
  }

  TEST_CASE("transfers, skips and the update lengthen the paths") {
    SimulationInput input = equal_stages(straight("1f1b", 3, 1));
    for (StageCosts& costs : input.stages) costs.update = Seconds(0.5);
    test::link_all(input, {BytesPerSecond(100), Seconds(1)});
    input.edges = {{StageId{0}, StageId{1}, Bytes(200), Bytes(0)},
                   {StageId{1}, StageId{2}, Bytes(0), Bytes(0)},
                   {StageId{0}, StageId{2}, Bytes(900), Bytes(0), 1, 0}};
    // F0 0-1, over the skip until 1 + 9 + 1 = 11, F2 12, B2 14, B1 15-17, B0 18-20, U 20.5.
    CHECK(makespan_bound(input).count() == 20.5);
    input.edges.pop_back();
    // Now F1 at 1 + 2 + 1 = 4, F2 6-7, B2 9, B1 10-12, B0 13-15, U 15.5.
    CHECK(makespan_bound(input).count() == 15.5);
    CHECK(makespan(input) == 15.5);
  }

  TEST_CASE("the period is at least the work of the busiest worker") {
    SimulationInput input = equal_stages(straight("1f1b", 2, 4));
    input.stages[1] = test::costs(2, 3);
    input.stages[1].update = Seconds(1);
    CHECK(period_bound(input).count() == 4 * 5 + 1);
    input.micro_batch_scale = {1, 0.5, 0.5, 0.5};
    CHECK(period_bound(input).count() == 2.5 * 5 + 1);
  }

  TEST_CASE("no simulated schedule is shorter") {
    Dice dice;
    int reached = 0;
    int simulated = 0;
    for (const ScheduleRow& row : schedule_table()) {
      for (int round = 0; row.synchronous && round < 300; ++round) {
        ScheduleRequest request;
        request.name = row.name;
        for (int s = dice.below(5); s >= 0; --s) request.replicas.push_back(1 + dice.below(round % 2 + 1));
        request.micro_batches = 1 + dice.below(10);
        SimulationInput input;
        try {
          input = equal_stages(program_set(request));
        } catch (const Error&) {
          continue;  // a documented restriction
        }
        randomise(input, dice);
        for (const AllReduceMode mode :
             {AllReduceMode::overlapped, AllReduceMode::blocking, AllReduceMode::free}) {
          input.all_reduce = mode;
          const double time = makespan(input);
          const double bound = makespan_bound(input).count();
          CAPTURE(request.name);
          CAPTURE(round);
          REQUIRE(time >= bound * (1 - 1e-12));
          ++simulated;
          if (time <= bound * (1 + 1e-12)) ++reached;
        }
      }
    }
    CHECK(simulated > 1000);
    CHECK(reached > simulated / 20);  // a bound of 0 would hold, too
  }

  TEST_CASE("several stages on a worker share its time") {
    // V order: worker 0 has stages 0 and 3. Worker 1's four backwards cannot start before F0, F1, F2, F3 and B3
    // are through, at 6; they take 8, and a B0 of 2 must follow the last: 16.
    const auto set = written(
        {"F0.0 F0.1 F3.0 B3.0 F3.1 B3.1 B0.0 B0.1 U0 U3", "F1.0 F2.0 F1.1 F2.1 B2.0 B1.0 B2.1 B1.1 U1 U2"},
        {{0}, {1}, {1}, {0}}, 2);
    CHECK(makespan_bound(equal_stages(set)).count() == 16);
    CHECK(makespan(equal_stages(set)) >= 16);
  }
}

}  // namespace
}  // namespace pp::plan

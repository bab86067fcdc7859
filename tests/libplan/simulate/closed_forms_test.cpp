// The published closed forms and examples worked by hand, over grids.

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan {
namespace {

using test::approx;
using test::costs;
using test::equal_stages;
using test::link_all;
using test::makespan;
using test::straight;

constexpr double kT = 3;  // F + B

double with_latency(ProgramSet set, double latency) {
  SimulationInput input = equal_stages(std::move(set));
  link_all(input, {BytesPerSecond(0), Seconds(latency)});
  return makespan(input);
}

/// Stage times in proportion to the replicas: without link costs the ideal period is 3.
SimulationInput replicated_stream(const std::vector<int>& replicas, WindowRule window, int micro_batches,
                                  AllReduceMode mode) {
  SimulationInput input = equal_stages(program_set({"pipedream", replicas, 1, window, {}}, micro_batches));
  for (std::size_t s = 0; s < replicas.size(); ++s) input.stages[s] = costs(replicas[s], 2 * replicas[s]);
  input.all_reduce = mode;
  return input;
}

TEST_SUITE("libplan/simulate/closed forms") {
  TEST_CASE("1f1b pays the latency in every round, the wide window once") {
    for (int k = 2; k <= 8; ++k) {
      for (int rounds = 1; rounds <= 5; ++rounds) {
        const int m = rounds * k;
        for (const double c : {0.25, 1.0, 3.0}) {
          CAPTURE(k);
          CAPTURE(m);
          CAPTURE(c);
          const double ideal = (m + k - 1) * kT;
          CHECK(with_latency(straight("1f1b", k, m), c) ==
                approx(ideal + (2.0 * (k - 1) * rounds + 2 * (k - 2)) * c));
          CHECK(with_latency(straight("gpipe", k, m), c) == approx(ideal + 2 * (k - 1) * c));
          if (c <= kT / 2) {
            CHECK(with_latency(straight("1f1b", k, m, WindowRule::wide), c) == approx(ideal + 2 * (k - 1) * c));
          }
        }
      }
    }
  }

  TEST_CASE("a window too small for the round trip throttles") {
    // By hand: S = 2, F = B = 1, t = t' = 0.5 in transfer time, so RT_0 = 2*2 + 2*0.5 = 5.
    const auto with_window = [](const std::string& name, std::vector<int> window, int micro_batches) {
      const int per_step = name == "1f1b" ? micro_batches : 1;
      SimulationInput input =
          equal_stages(program_set({name, {1, 1}, per_step, WindowRule::explicit_list, window}, micro_batches));
      input.stages = {costs(1, 1), costs(1, 1)};
      input.edges = {{StageId{0}, StageId{1}, Bytes(500), Bytes(500)}};
      link_all(input, {BytesPerSecond(1000), Seconds(0)});
      return input;
    };
    CHECK(makespan(with_window("1f1b", {2, 1}, 4)) == approx(12));
    CHECK(makespan(with_window("1f1b", {3, 1}, 4)) == approx(11));
    CHECK(steady_period(with_window("pipedream", {2, 1}, 120)).count() == approx(2.5));
    CHECK(steady_period(with_window("pipedream", {3, 1}, 120)).count() == approx(2));
  }

  TEST_CASE("the published window misses the ideal period where replicas grow, the planner's reaches it") {
    const auto period = [](std::vector<int> replicas, WindowRule rule, int micro_batches) {
      return steady_period(replicated_stream(replicas, rule, micro_batches, AllReduceMode::free)).count();
    };
    // 1680 = 3 * 10 * lcm(7, 8).
    CHECK(period({7, 8, 1}, WindowRule::published, 1680) == doctest::Approx(3.46).epsilon(0.01));
    CHECK(period({7, 8, 1}, WindowRule::win, 1680) == approx(3));
    CHECK(period({1, 4, 1}, WindowRule::published, 240) == approx(7.5));
    CHECK(period({1, 4, 1}, WindowRule::win, 240) == approx(3));
  }

  TEST_CASE("measured over no whole round, the period is never too small, and too large by r/T at most") {
    // Without link costs 7-5-3 takes 3 per micro-batch, in rounds of 105: no third T is a multiple of it.
    for (const int third : {100, 211, 433, 1000}) {
      const double period =
          steady_period(replicated_stream({7, 5, 3}, WindowRule::win, 3 * third, AllReduceMode::free)).count();
      CHECK(period >= 3 * (1 - 1e-12));
      CHECK(period <= 3 * (1 + 7.0 / third));
    }
  }

  TEST_CASE("an all-reduce that blocks couples the replicas") {
    // Free but blocking, 2-1, 3-1 and 2-2 stay at 3.0; 2-1-1 and 4-2-1 have period 4.5.
    const auto period = [](std::vector<int> replicas) {
      return steady_period(replicated_stream(replicas, WindowRule::published, 720, AllReduceMode::blocking))
          .count();
    };
    CHECK(period({2, 1}) == approx(3));
    CHECK(period({3, 1}) == approx(3));
    CHECK(period({2, 2}) == approx(3));
    CHECK(period({2, 1, 1}) == approx(4.5));
    CHECK(period({4, 2, 1}) == approx(4.5));
  }

  TEST_CASE("a chained step repeats its unequal micro-batches") {
    SimulationInput input = equal_stages(straight("gpipe", 1, 3));
    input.micro_batch_scale = {1, 0.5, 2};
    CHECK(chained_period(input).count() == approx(3 * 3.5));
  }

  TEST_CASE("periods are asked of the kind of programs that has them") {
    CHECK(test::error_of([] {
            chained_period(replicated_stream({1, 1}, WindowRule::win, 6, AllReduceMode::free));
          }) == "chained period: the programs are asynchronous; use the steady period");
    CHECK(test::error_of([] {
            steady_period(replicated_stream({1, 1}, WindowRule::win, 4, AllReduceMode::free));
          }) == "steady period: 4 micro-batches are not a multiple of 3; expand the streams to one");
  }
}

}  // namespace
}  // namespace pp::plan

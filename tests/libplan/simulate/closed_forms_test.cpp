// The published closed forms and examples worked by hand, over grids.
#include <algorithm>

#include "libprofile/core/index.h"
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
using test::written;

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
  TEST_CASE("gpipe and 1f1b take (M + K - 1) T, with the published bubble and peaks") {
    for (int k = 1; k <= 8; ++k) {
      for (int m = 1; m <= 32; ++m) {
        CAPTURE(k);
        CAPTURE(m);
        for (const std::string name : {"gpipe", "1f1b"}) {
          const SimulationInput input = equal_stages(straight(name, k, m));
          const SimulationResult result = simulate(input);
          CHECK(result.makespan.count() == approx((m + k - 1) * kT));
          CHECK(result.bubble_fraction == approx((k - 1.0) / (m + k - 1)));
          for (int r = 0; r < k; ++r) {
            const double peak = peak_in_flight(input.programs.workers[at(r)], 1);
            CHECK(peak == (name == "gpipe" ? m : std::min(k - r, m)));
          }
        }
      }
    }
  }

  TEST_CASE("gpipe with unequal stages takes the sums and M-1 times the slowest forward and backward") {
    for (int m = 1; m <= 12; ++m) {
      SimulationInput input = equal_stages(straight("gpipe", 4, m));
      input.stages = {costs(1, 5), costs(4, 2), costs(2, 2), costs(3, 1)};
      CHECK(makespan(input) == approx(10 + (m - 1) * 4 + 10 + (m - 1) * 5));
    }
  }

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

  TEST_CASE("DAPPLE's PA and PB with latency, K = 4, M = 16") {
    // c, PA, PB, as published.
    const double table[][3] = {{0.25, 64, 58.5}, {0.5, 71, 60}, {1, 85, 63}, {1.5, 99, 66}};
    for (const auto& [c, pa, pb] : table) {
      CHECK(with_latency(straight("1f1b", 4, 16), c) == approx(pa));
      CHECK(with_latency(straight("1f1b", 4, 16, WindowRule::wide), c) == approx(pb));
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

  TEST_CASE("chained steps of 1f1b repeat after the isolated makespan") {
    // K = 4, M = 8: worker 3 is done with a step at 3 + 8*3 = 27, but F4.0 of the next one waits for worker 0,
    // which finishes at 33.
    for (int k = 1; k <= 6; ++k) {
      for (int m = 1; m <= 12; ++m) {
        CHECK(chained_period(equal_stages(straight("1f1b", k, m))).count() == approx((m + k - 1) * kT));
      }
    }
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

  TEST_CASE("zero-bubble H1 in text: makespan max(3M + K - 1, 2(M + K) - 1)") {
    // w = min(K-1-i, M) forwards, then F, I and, from b = i on, W.
    for (int k = 2; k <= 5; ++k) {
      for (int m = 1; m <= 10; ++m) {
        ProgramSet set = straight("gpipe", k, m);
        for (int i = 0; i < k; ++i) {
          const StageId stage{i};
          Program program;
          const int warm_up = std::min(k - 1 - i, m);
          int weight = 0;
          for (int f = 0; f < warm_up; ++f) program.push_back({OpKind::forward, stage, f});
          for (int b = 0; b < m; ++b) {
            if (warm_up + b < m) program.push_back({OpKind::forward, stage, warm_up + b});
            program.push_back({OpKind::input_gradient, stage, b});
            if (b >= i) program.push_back({OpKind::weight_gradient, stage, weight++});
          }
          while (weight < m) program.push_back({OpKind::weight_gradient, stage, weight++});
          program.push_back({OpKind::update, stage, 0});
          set.workers[at(i)] = program;
        }
        CHECK_NOTHROW(validate(set));
        CHECK(makespan(equal_stages(set)) == approx(std::max(3 * m + k - 1, 2 * (m + k) - 1)));
        if (k == 4 && m == 8) CHECK(chained_period(equal_stages(set)).count() == approx(27));
      }
    }
  }

  TEST_CASE("two stages per worker in V order, split backwards: 3M + (K - 1)/2") {
    // ZB-V, K = 2, M = 4: 12.5.
    const ProgramSet set = written({"F0.0 F0.1 F0.2 F3.0 I3.0 W3.0 F3.1 I3.1 W3.1 F0.3 I0.0 W0.0 F3.2 I3.2 "
                                    "W3.2 I0.1 W0.1 F3.3 I3.3 W3.3 I0.2 W0.2 "
                                    "I0.3 W0.3 U0 U3",
                                    "F1.0 F2.0 F1.1 F2.1 I2.0 W2.0 F1.2 I1.0 W1.0 F2.2 I2.1 W2.1 F1.3 I1.1 "
                                    "W1.1 F2.3 I2.2 W2.2 I1.2 I2.3 I1.3 W1.2 "
                                    "W2.3 W1.3 U1 U2"},
                                   {{0}, {1}, {1}, {0}}, 4);
    CHECK_NOTHROW(validate(set));
    const SimulationResult result = simulate(equal_stages(set, 2));
    CHECK(result.makespan.count() == approx(12.5));
    CHECK(result.bubble_fraction == approx(1 - 12 / 12.5));
  }
}

}  // namespace
}  // namespace pp::plan

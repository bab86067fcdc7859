// The published formulas against the simulated lists, over grids.
#include "libplan/schedule/closed_forms.h"

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan::closed_forms_test {
namespace {

using test::approx;
using test::equal_stages;

ScheduleRequest request(const std::string& name, int workers, int micro_batches, int chunks = 0) {
  ScheduleRequest result{name, std::vector<int>(at(workers), 1), micro_batches, WindowRule::win, {}};
  result.chunks_per_worker = chunks;
  return result;
}

/// Whether the schedule has a list for these numbers.
bool legal(const ScheduleRequest& what) {
  return test::error_of([&] { make_schedule(what); }).empty();
}

SimulationInput with_times(const ScheduleRequest& what, const ShareTimes& times) {
  SimulationInput input = equal_stages(program_set(what));
  const int v = chunks_of(what);
  for (StageCosts& stage : input.stages) {
    stage.forward = Seconds(times.forward / v);
    stage.input_gradient = Seconds(times.input_gradient / v);
    stage.weight_gradient = Seconds(times.weight_gradient / v);
    stage.backward = stage.input_gradient + stage.weight_gradient;
  }
  return input;
}

TEST_SUITE("libplan/schedule/closed forms") {
  TEST_CASE("every schedule's makespan, bubble and peaks are those of its row") {
    int compared = 0;
    for (const ScheduleRow& row : schedule_table()) {
      for (int k = 1; k <= 10; ++k) {
        for (int m = 1; m <= 4 * k + 2; m += m < 12 ? 1 : 5) {
          for (int v : row.chunks == Chunks::several ? std::vector{2, 3, 4} : std::vector{0}) {
            const ScheduleRequest what = request(std::string(row.name), k, m, v);
            if (row.generate == nullptr || !legal(what)) continue;
            const auto expected = closed_form(what);
            if (!expected) continue;
            INFO(what.name);
            CAPTURE(k);
            CAPTURE(m);
            CAPTURE(v);
            const SimulationInput input = with_times(what, {});
            const SimulationResult result = simulate(input);
            CHECK(result.makespan.count() == approx(expected->makespan));
            CHECK(result.bubble_fraction == doctest::Approx(expected->bubble_fraction).epsilon(1e-9));
            for (std::size_t r = 0; r < expected->peak_in_flight.size(); ++r)
              CHECK(peak_in_flight(input.programs.workers[r], chunks_of(what)) ==
                    approx(expected->peak_in_flight[r]));
            ++compared;
          }
        }
      }
    }
    CHECK(compared > 1500);
  }

  TEST_CASE("where formulas are not for unit times only, unequal F, I and W follow them too") {
    const ShareTimes times{1.5, 0.75, 0.5};
    for (const std::string name : {"gpipe", "1f1b", "interleaved", "looped-bfs"}) {
      for (const auto& [k, m] : {std::pair{2, 4}, {4, 8}, {3, 3}}) {
        const ScheduleRequest what = request(name, k, m);
        CHECK(simulate(with_times(what, times)).makespan.count() == approx(closed_form(what, times)->makespan));
      }
    }
    CHECK_FALSE(closed_form(request("zb-h1", 4, 8), times));
  }

  TEST_CASE("there is no formula for replicas, windows, limits and groups") {
    ScheduleRequest what = request("1f1b", 3, 6);
    CHECK(closed_form(what));
    what.replicas = {2, 1, 1};
    CHECK_FALSE(closed_form(what));
    what = request("dapple-pa", 3, 6);
    what.in_flight_limits = {1};
    CHECK_FALSE(closed_form(what));
    what = request("interleaved", 3, 6);
    what.group = 6;
    CHECK_FALSE(closed_form(what));
  }

  TEST_CASE("gpipe with unequal stages") {
    // By hand: F = [3,2,5,2], B = 2F, M = 8: 12 + 7*5 + 24 + 7*10 = 141; 1f1b takes 136.
    const std::vector<double> f{3, 2, 5, 2};
    const std::vector<double> b{6, 4, 10, 4};
    CHECK(gpipe_makespan(f, b, 8) == approx(141));
    for (const auto& [name, makespan] :
         {std::pair{"gpipe", 141.0}, {"gpipe-reverse", 141.0}, {"1f1b", 136.0}}) {
      SimulationInput input = equal_stages(program_set(request(name, 4, 8)));
      for (std::size_t s = 0; s < 4; ++s) input.stages[s] = test::costs(f[s], b[s]);
      CHECK(test::makespan(input) == approx(makespan));
    }
  }
}

}  // namespace
}  // namespace pp::plan::closed_forms_test

#include "libplan/simulate/memory_walk.h"

#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan::memory_curve_test {
namespace {

using test::equal_stages;
using test::straight;
using test::written;

StageCosts sized() {
  StageCosts result = test::costs(1, 2);
  result.weights = Bytes(100);
  result.gradients = Bytes(100);
  result.optimizer = Bytes(200);
  result.saved = Bytes(10);
  result.input = Bytes(3);
  result.boundary = Bytes(8);
  result.workspace = Bytes(5);
  return result;
}

SimulationInput sized_input(ProgramSet set, std::vector<double> scale = {}) {
  SimulationInput input = equal_stages(std::move(set));
  input.stages.assign(input.stages.size(), sized());
  input.micro_batch_scale = std::move(scale);
  return input;
}

/// The largest value of every part, and of their sum, over a whole curve.
MemoryPeak maxima(const MemoryCurve& curve) {
  MemoryPeak peak;
  const auto raise = [](Bytes& most, Bytes bytes) { most = std::max(most, bytes); };
  for (const MemoryStep& step : curve) {
    raise(peak.weights, step.held.weights);
    raise(peak.gradients, step.held.gradients);
    raise(peak.optimizer, step.held.optimizer);
    raise(peak.versions, step.held.versions);
    raise(peak.saved, step.held.saved);
    raise(peak.boundary, step.held.boundary);
    raise(peak.workspace, step.held.workspace);
    raise(peak.peak, total(step.held));
  }
  return peak;
}

TEST_SUITE("libplan/simulate/memory curve") {
  TEST_CASE("the curve of one micro-batch on one worker, step by step") {
    const SimulationInput input = sized_input(straight("gpipe", 1, 1));
    const MemoryCurve curve = memory_curves(input, simulate(input)).at(0);
    // F 0-1, B 1-3. Always there: 100, 100, 200 and 8. F takes 10 + 3 until B ends; 5 only inside an operation.
    const auto held = [](int saved, int workspace) {
      return MemoryParts{Bytes(100),   Bytes(100), Bytes(200),      Bytes(0),
                         Bytes(saved), Bytes(8),   Bytes(workspace)};
    };
    CHECK(curve == MemoryCurve{{Seconds(0), held(0, 0)},
                               {Seconds(0), held(13, 5)},
                               {Seconds(1), held(13, 0)},
                               {Seconds(1), held(13, 5)},
                               {Seconds(3), held(0, 0)}});
  }

  TEST_CASE("the largest values of each curve are the peaks of the simulation") {
    const std::vector<SimulationInput> inputs{
        sized_input(straight("1f1b", 4, 8)),
        sized_input(straight("gpipe", 3, 5), {1, 0.5, 2, 1, 0.25}),
        sized_input(program_set({"pipedream", {1, 1, 1, 1}, 1, WindowRule::win, {}}, 12)),
        sized_input(program_set({"pipedream", {2, 1}, 1, WindowRule::win, {}}, 12)),
        sized_input(written({"F0.0 F0.1 R0.0 B0.0 R0.1 B0.1 U0"}, {{0}}, 2)),
        sized_input(written({"F0.0 F1.0 I1.0 I0.0 W1.0 W0.0 U0 U1"}, {{0}, {0}}, 1))};
    for (const SimulationInput& input : inputs) {
      const SimulationResult result = simulate(input);
      const std::vector<MemoryCurve> curves = memory_curves(input, result);
      REQUIRE(curves.size() == result.memory.size());
      for (std::size_t w = 0; w < curves.size(); ++w) {
        CAPTURE(w);
        CHECK(maxima(curves[w]) == result.memory[w]);
        CHECK(std::ranges::is_sorted(curves[w], {}, &MemoryStep::time));
      }
    }
  }

  TEST_CASE("operations without length keep their moment") {
    SimulationInput input = sized_input(straight("gpipe", 1, 2));
    for (Seconds* time : {&input.stages[0].forward, &input.stages[0].backward}) *time = Seconds(0);
    const SimulationResult result = simulate(input);
    CHECK(maxima(memory_curves(input, result)[0]) == result.memory[0]);
  }

  TEST_CASE("the result of another input is refused") {
    const SimulationInput input = sized_input(straight("gpipe", 2, 2));
    const SimulationResult other = simulate(sized_input(straight("1f1b", 2, 2)));
    CHECK(test::error_of([&] { memory_curves(input, other); }) ==
          "memory curves: the result does not belong to the input");
    CHECK(test::error_of([&] { memory_curves(input, {}); }) ==
          "memory curves: the result does not belong to the input");
  }

  TEST_CASE("samples keep the highest moment of their time") {
    const auto step = [](double time, int saved) {
      MemoryStep result{Seconds(time), {}};
      result.held.saved = Bytes(saved);
      return result;
    };
    const auto saved = [](const std::vector<MemoryParts>& samples) {
      std::vector<std::int64_t> bytes;
      for (const MemoryParts& held : samples) bytes.push_back(held.saved.value);
      return bytes;
    };
    // 1 until 2, 9 for an instant at 2, 4 until 3.5, then 0; four columns of one second, two of two.
    const MemoryCurve curve{step(0, 1), step(2, 9), step(2, 4), step(3.5, 0)};
    CHECK(saved(sample(curve, Seconds(4), 4)) == std::vector<std::int64_t>{1, 1, 9, 4});
    CHECK(saved(sample(curve, Seconds(4), 2)) == std::vector<std::int64_t>{1, 9});
    // Without length all of it is in the first column, and what remains in the others.
    CHECK(saved(sample(curve, Seconds(0), 2)) == std::vector<std::int64_t>{9, 0});
    CHECK(highest(std::vector{curve, curve}) == Bytes(9));
  }
}

}  // namespace
}  // namespace pp::plan::memory_curve_test

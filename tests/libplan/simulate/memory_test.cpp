// What a worker holds during a step: its peaks by hand, and the curve that they belong to.
#include "libprofile/core/index.h"

#include "libplan/simulate/memory_walk.h"
#include "tests/libplan/schedule/support.h"
#include "tests/libplan/simulate/support.h"
#include "tests/support/doctest.h"

namespace pp::plan::memory_test {
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

std::vector<MemoryPeak> memory(ProgramSet set, std::vector<double> scale = {}) {
  SimulationInput input = equal_stages(std::move(set));
  input.stages.assign(input.stages.size(), sized());
  input.micro_batch_scale = std::move(scale);
  return simulate(input).memory;
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

TEST_SUITE("libplan/simulate/memory") {
  TEST_CASE("1f1b holds as many micro-batches as its window") {
    const auto peaks = memory(straight("1f1b", 2, 3));
    // Always there: 100 + 100 + 200 + 8 = 408. Stage 0 holds 2 x (10 + 3), stage 1 one; 5 on top inside an
    // operation.
    CHECK(peaks[0] ==
          MemoryPeak{Bytes(100), Bytes(100), Bytes(200), Bytes(0), Bytes(26), Bytes(8), Bytes(5), Bytes(439)});
    CHECK(peaks[1] ==
          MemoryPeak{Bytes(100), Bytes(100), Bytes(200), Bytes(0), Bytes(13), Bytes(8), Bytes(5), Bytes(426)});
  }

  TEST_CASE("gpipe holds all micro-batches") { CHECK(memory(straight("gpipe", 2, 3))[1].saved == Bytes(39)); }

  TEST_CASE("a split backward holds everything until W") {
    // F0 F1 are both held before the first W.
    CHECK(memory(written({"F0.0 I0.0 F0.1 W0.0 I0.1 W0.1 U0"}, {{0}}, 2))[0].saved == Bytes(26));
    CHECK(memory(written({"F0.0 I0.0 W0.0 F0.1 I0.1 W0.1 U0"}, {{0}}, 2))[0].saved == Bytes(13));
  }

  TEST_CASE("what waits for W takes the place of all the rest when I ends, and I's room is enough for W") {
    const auto peak = [](std::int64_t waiting, const std::string& program) {
      SimulationInput input = equal_stages(written({program}, {{0}}, 2));
      input.stages.assign(1, sized());
      input.stages[0].waiting = Bytes(waiting);
      return simulate(input).memory[0];
    };
    // 13 from F to I, then 6: in F0.1 19, and W0.0 has what I0.0 had, 13 + 5, beside micro-batch 1.
    const MemoryPeak less = peak(6, "F0.0 I0.0 F0.1 W0.0 I0.1 W0.1 U0");
    CHECK(less.saved == Bytes(13 + 6));
    CHECK(less.peak == Bytes(408 + 13 + 18));
    CHECK(peak(6, "F0.0 I0.0 W0.0 F0.1 I0.1 W0.1 U0").peak == Bytes(408 + 18));
    // Output gradients outweigh what is freed: 20 from I on, above I's own peak of 18.
    const MemoryPeak more = peak(20, "F0.0 I0.0 F0.1 I0.1 W0.0 W0.1 U0");
    CHECK(more.saved == Bytes(20 + 20));
    CHECK(more.peak == Bytes(408 + 20 + 20));
    CHECK(peak(20, "F0.0 B0.0 F0.1 B0.1 U0").saved == Bytes(13));
  }

  TEST_CASE("between F and R only the input is held") {
    // Two inputs 6, R adds 10: 16; after B0.0 one input is left, R0.1 makes it 13.
    const MemoryPeak peak = memory(written({"F0.0 F0.1 R0.0 B0.0 R0.1 B0.1 U0"}, {{0}}, 2))[0];
    CHECK(peak.saved == Bytes(16));
    CHECK(peak.peak == Bytes(408 + 16 + 5));
  }

  TEST_CASE("layers that run again are there inside B, with a split backward from I to the end of W") {
    const auto saved = [](const std::string& program) {
      SimulationInput input = equal_stages(written({program}, {{0}}, 2));
      input.stages.assign(1, sized());
      input.stages[0].again = Bytes(4);
      input.stages[0].again_split = Bytes(7);
      return simulate(input).memory[0].saved;
    };
    // Each micro-batch holds 13.
    CHECK(saved("F0.0 F0.1 B0.0 B0.1 U0") == Bytes(2 * 13 + 4));
    CHECK(saved("F0.0 B0.0 F0.1 B0.1 U0") == Bytes(13 + 4));
    CHECK(saved("F0.0 I0.0 W0.0 F0.1 I0.1 W0.1 U0") == Bytes(13 + 7));
    CHECK(saved("F0.0 F0.1 I0.0 I0.1 W0.0 W0.1 U0") == Bytes(2 * (13 + 7)));
  }

  TEST_CASE("a worker with several stages holds all their weights") {
    const MemoryPeak peak = memory(written({"F0.0 F1.0 B1.0 B0.0 U0 U1"}, {{0}, {0}}, 1))[0];
    CHECK(peak ==
          MemoryPeak{Bytes(200), Bytes(200), Bytes(400), Bytes(0), Bytes(26), Bytes(16), Bytes(5), Bytes(847)});
  }

  TEST_CASE("smaller micro-batches hold less") {
    // gpipe, sizes 1 and 0.5: saved 10 + 5, input 3 + 1.5 rounded to 2. The peak is in the largest workspace or
    // with both held: B0.0 runs with 20 held and 5 on top.
    const MemoryPeak peak = memory(straight("gpipe", 1, 2), {1, 0.5})[0];
    CHECK(peak.saved == Bytes(20));
    CHECK(peak.workspace == Bytes(5));
    CHECK(peak.peak == Bytes(408 + 20 + 5));
  }

  TEST_CASE("the peak is one moment, not the sum of the parts' peaks") {
    // A stage with two kinds of pressure: micro-batch 0 is large and alone, 1 and 2 are small and together.
    SimulationInput input = equal_stages(written({"F0.0 B0.0 F0.1 F0.2 B0.1 B0.2 U0"}, {{0}}, 3));
    input.stages[0].saved = Bytes(100);
    input.stages[0].workspace = Bytes(100);
    input.micro_batch_scale = {1, 0.6, 0.6};
    const MemoryPeak peak = simulate(input).memory[0];
    CHECK(peak.saved == Bytes(120));
    CHECK(peak.workspace == Bytes(100));
    CHECK(peak.peak == Bytes(200));  // 100 + 100 in F0.0; 120 + 60 later
  }

  TEST_CASE("stashing keeps K - s versions, counted from the programs") {
    // K = 4: 4, 3, 2, 1 versions, so 3, 2, 1, 0 copies beside the newest.
    const auto peaks = memory(program_set({"pipedream", {1, 1, 1, 1}, 1, WindowRule::win, {}}, 12));
    for (int s = 0; s < 4; ++s) {
      CHECK(peaks[at(s)].versions == Bytes((3 - s) * 100));
      CHECK(peaks[at(s)].saved == Bytes((4 - s) * 13));
    }
    // All of it at once: at F0.4 the micro-batches 1, 2, 3 hold version 0, F0.4 takes version 1; later four
    // different.
    CHECK(peaks[0].peak == Bytes(408 + 300 + 52 + 5));
  }

  TEST_CASE("a stream too short to fill the window makes fewer versions") {
    // J = 2 on stage 0 of 4: F0 F1 B0 U B1 U. Version 0 is held by micro-batch 1 while version 1 is the newest.
    CHECK(memory(program_set({"pipedream", {1, 1, 1, 1}, 1, WindowRule::win, {}}, 2))[0].versions ==
          Bytes(100));
  }

  TEST_CASE("versions that the policy keeps are there from the start") {
    SimulationInput input = equal_stages(straight("1f1b", 1, 2));
    input.stages[0] = sized();
    input.stages[0].versions = 3;
    CHECK(simulate(input).memory[0].versions == Bytes(200));
  }

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
}  // namespace pp::plan::memory_test

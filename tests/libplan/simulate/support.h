// Costs and readable results for tests of the simulator.
#pragma once

#include <sstream>
#include <string>
#include <utility>

#include "libplan/simulate/simulate.h"
#include "tests/support/doctest.h"

namespace pp::plan::test {

inline doctest::Approx approx(double value) { return doctest::Approx(value).epsilon(1e-12); }

/// A backward that splits into equal halves; recompute takes as long as forward.
inline StageCosts costs(double forward, double backward) {
  StageCosts result;
  result.forward = result.recompute = Seconds(forward);
  result.backward = Seconds(backward);
  result.input_gradient = result.weight_gradient = Seconds(backward / 2);
  return result;
}

/// Unit costs: F = I = W = 1, B = 2; with several stages per worker each a part of that.
inline SimulationInput equal_stages(ProgramSet set, int chunks_per_worker = 1) {
  SimulationInput input;
  input.stages.assign(set.stage_workers.size(), costs(1.0 / chunks_per_worker, 2.0 / chunks_per_worker));
  input.programs = std::move(set);
  return input;
}

/// The same link between all workers.
inline void link_all(SimulationInput& input, Link link) { input.links = {{link}}; }

inline double makespan(const SimulationInput& input) { return simulate(input).makespan.count(); }

/// `F0.0 0-1, F0.1 1-2`: one worker in list order.
inline std::string times(const SimulationResult& result, int worker) {
  std::ostringstream text;
  for (const OpEvent& event : result.ops) {
    if (event.worker != WorkerId{worker}) continue;
    text << (text.tellp() > 0 ? ", " : "") << to_text(event.op) << ' ' << event.start.count() << '-'
         << event.end.count();
  }
  return text.str();
}

/// `F0.0 0>1 1-2`: producer, workers, times on the ports.
inline std::string transfers(const SimulationResult& result) {
  std::ostringstream text;
  for (const MessageEvent& message : result.messages) {
    text << (text.tellp() > 0 ? ", " : "") << to_text(message.producer) << ' ' << number(message.from) << '>'
         << number(message.to) << ' ' << message.start.count() << '-' << message.end.count();
  }
  return text.str();
}

}  // namespace pp::plan::test

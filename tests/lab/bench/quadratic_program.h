// The program that every exact bottleneck search is measured against: PipeDream's recurrence (Narayanan et al.,
// SOSP'19, sec. 3.1) over boundaries and devices, with nothing left out and nothing clever.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "libplan/cost/stage_cost.h"

namespace pp::bench {

/// The least bottleneck on at most `devices` devices. O(layers^2 devices^2); stage and cuts are priced once for
/// each (begin, end, replicas), outside the innermost loop.
inline double quadratic_program(const plan::StageCost& cost, int layers, int devices) {
  const auto width = static_cast<std::size_t>(devices + 1);
  std::vector<double> best(static_cast<std::size_t>(layers + 1) * width,
                           std::numeric_limits<double>::infinity());
  const auto row = [&](int boundary) { return best.data() + static_cast<std::size_t>(boundary) * width; };
  row(layers)[0] = 0;
  for (int begin = layers - 1; begin >= 0; --begin) {
    double* here = row(begin);
    for (int end = begin + 1; end <= layers; ++end) {
      const double* behind = row(end);
      for (int replicas = 1; replicas <= devices; ++replicas) {
        double load = cost.stage(begin, end, {0, replicas});
        if (begin != 0) load = std::max(load, cost.cut(begin, {0, replicas}, plan::CutSide::in));
        if (end != layers) load = std::max(load, cost.cut(end, {0, replicas}, plan::CutSide::out));
        for (int used = 0; used + replicas <= devices; ++used)
          here[used + replicas] = std::min(here[used + replicas], std::max(behind[used], load));
      }
    }
  }
  return *std::min_element(row(0), row(0) + devices + 1);
}

/// Executions of the innermost statement.
inline double quadratic_steps(int layers, int devices) {
  return 0.25 * layers * (layers + 1.0) * devices * (devices + 1.0);
}

}  // namespace pp::bench

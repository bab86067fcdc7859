// Figures of all steps in bounded memory, for curves over a whole run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libprofile/core/units.h"
#include "librun/report/record.h"

namespace pp::run {

/// Sample i stands for the steps from i * stride on, the last one for as many as there are.
struct StepHistory {
  std::int64_t stride = 1;
  std::int64_t steps = 0;
  std::vector<Seconds> time;             ///< mean of the steps
  std::vector<std::vector<Bytes>> peak;  ///< per worker: the largest of the steps
  bool operator==(const StepHistory&) const = default;

  /// When there are kMost samples, neighbours are joined two by two.
  void add(Seconds step, std::span<const StepFigures> workers);
  static constexpr std::size_t kMost = 512;

 private:
  void join_neighbours();
};

}  // namespace pp::run

// How far predictions are from what was measured, and the random halves of runs that fits are judged by.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace pp::profile {

/// Of |predicted / measured - 1| and of predicted / measured - 1.
struct FitError {
  double mean = 0, median = 0, signed_mean = 0;
  int runs = 0;
};

/// `ratios`: predicted / measured of each run. All zero without runs. O(runs log runs).
FitError fit_error(const std::vector<double>& ratios);

/// The positions 0 .. count - 1 in two halves, in random order; of an odd number the first has one more. The
/// same seed gives the same halves on every machine.
std::pair<std::vector<std::size_t>, std::vector<std::size_t>> random_halves(std::size_t count, unsigned seed);

}  // namespace pp::profile

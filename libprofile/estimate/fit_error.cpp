#include "libprofile/estimate/fit_error.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace pp::profile {

FitError fit_error(const std::vector<double>& ratios) {
  FitError error;
  error.runs = static_cast<int>(ratios.size());
  if (ratios.empty()) return error;
  std::vector<double> absolute;
  for (const double ratio : ratios) {
    error.signed_mean += (ratio - 1) / error.runs;
    absolute.push_back(std::abs(ratio - 1));
  }
  error.mean = std::accumulate(absolute.begin(), absolute.end(), 0.0) / error.runs;
  std::ranges::sort(absolute);
  error.median = absolute[absolute.size() / 2];
  return error;
}

std::pair<std::vector<std::size_t>, std::vector<std::size_t>> random_halves(std::size_t count, unsigned seed) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937 random(seed);
  for (std::size_t i = count; i-- > 1;) std::swap(order[i], order[random() % (i + 1)]);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>((count + 1) / 2);
  return {{order.begin(), middle}, {middle, order.end()}};
}

}  // namespace pp::profile

#include "libprofile/estimate/fit_memory.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pp::profile {
namespace {

constexpr std::size_t kFewest = 4;  // two for each of two figures
constexpr double kDigits = 1e4;     // of the rounding: more say nothing that the runs know

struct MemoryFigures {
  double context = 0, rounding = 1;
};

/// Residuals are context * a + rounding * b - 1 with a = 1 / measured and b = counted / measured.
struct Sums {
  double a = 0, b = 0, aa = 0, ab = 0, bb = 0, n = 0;

  double loss(const MemoryFigures& at) const {
    return at.context * at.context * aa + 2 * at.context * at.rounding * ab + at.rounding * at.rounding * bb -
           2 * at.context * a - 2 * at.rounding * b + n;
  }
};

MemoryFigures solved(const std::vector<PeakRun>& runs) {
  Sums sums;
  for (const PeakRun& run : runs) {
    const double a = 1 / static_cast<double>(run.measured.value),
                 b = a * static_cast<double>(run.counted.value);
    sums.a += a, sums.b += b, sums.aa += a * a, sums.ab += a * b, sums.bb += b * b, sums.n += 1;
  }
  std::vector<MemoryFigures> found{
      {0, 1}, {std::max(0.0, (sums.a - sums.ab) / sums.aa), 1}, {0, std::max(1.0, sums.b / sums.bb)}};
  const double determinant = sums.aa * sums.bb - sums.ab * sums.ab;
  if (determinant > 1e-12 * sums.aa * sums.bb) {
    const MemoryFigures free{(sums.a * sums.bb - sums.b * sums.ab) / determinant,
                             (sums.b * sums.aa - sums.a * sums.ab) / determinant};
    if (free.context >= 0 && free.rounding >= 1) found.push_back(free);
  }
  const MemoryFigures best =
      *std::ranges::min_element(found, {}, [&](const MemoryFigures& figures) { return sums.loss(figures); });
  return {std::round(best.context), std::round(best.rounding * kDigits) / kDigits};
}

FitError error_of(const std::vector<PeakRun>& runs, const MemoryFigures& at) {
  std::vector<double> ratios;
  for (const PeakRun& run : runs)
    ratios.push_back((at.context + at.rounding * static_cast<double>(run.counted.value)) /
                     static_cast<double>(run.measured.value));
  return fit_error(ratios);
}

}  // namespace

std::optional<std::string> memory_unseen(const DeviceSpec& start, std::span<const PeakRun> runs) {
  if (runs.empty()) return "no run says its peak";
  if (start.memory == Bytes(0)) return "the device to start from has no memory_bytes";
  if (runs.size() < kFewest)
    return std::to_string(runs.size()) + " runs say their peaks, at least " + std::to_string(kFewest) +
           " are needed";
  const auto [least, most] =
      std::ranges::minmax(runs, {}, [](const PeakRun& run) { return run.counted.value; });
  if (least.counted == most.counted) return "all runs count the same bytes";
  return std::nullopt;
}

MemoryFit fit_memory(const DeviceSpec& start, std::span<const PeakRun> runs, unsigned seed) {
  const std::vector<PeakRun> all(runs.begin(), runs.end());
  const auto [one, other] = random_halves(all.size(), seed);
  const auto chosen = [&](const std::vector<std::size_t>& positions) {
    std::vector<PeakRun> part;
    for (const std::size_t position : positions) part.push_back(all[position]);
    return part;
  };
  const MemoryFigures best = solved(all), of_half = solved(chosen(one));
  return {.context = std::min(Bytes(std::llround(best.context)), start.memory),
          .rounding = best.rounding,
          .before = error_of(all, {static_cast<double>(start.context.value), start.memory_rounding}),
          .all = error_of(all, best),
          .fitted_half = error_of(chosen(one), of_half),
          .other_half = error_of(chosen(other), of_half)};
}

}  // namespace pp::profile

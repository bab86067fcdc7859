#include "libprofile/measure/reference_drift.h"

#include <cmath>

#include "libprofile/measure/statistics.h"

namespace pp::profile {
namespace {

constexpr double kDriftTolerance = 0.10;

double median(std::span<const double> seconds) { return summarise(seconds).median.count(); }

}  // namespace

std::optional<double> reference_change(std::span<const double> seconds) {
  if (seconds.size() < 8) return std::nullopt;
  const std::size_t quarter = seconds.size() / 4;
  const double first = median(seconds.first(quarter));
  return first > 0 ? std::optional(median(seconds.last(quarter)) / first - 1) : std::nullopt;
}

std::optional<std::string> reference_finding(std::span<const double> seconds) {
  const std::optional<double> change = reference_change(seconds);
  if (!change || std::abs(*change) <= kDriftTolerance) return std::nullopt;
  return "a fixed piece of work took " + std::to_string(std::lround(100 * std::abs(*change))) + " % " +
         (*change > 0 ? "longer" : "less") +
         " at the end of the measurement than at its beginning: the cores' clock changed, or other programs "
         "that share cores, caches or memory came or went; let the machine cool, end other programs and "
         "profile again";
}

}  // namespace pp::profile

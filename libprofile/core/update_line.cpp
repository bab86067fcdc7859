#include "libprofile/core/update_line.h"

#include <algorithm>

namespace pp {
namespace {

/// The upper one of an even number. `values` is not empty.
double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

double bytes_of(const UpdatePoint& point) { return static_cast<double>(point.parameters.value); }
double seconds_of(const UpdatePoint& point) { return point.update.median.count(); }

std::vector<double> slopes(const std::vector<UpdatePoint>& points) {
  std::vector<double> slopes;
  for (std::size_t i = 0; i < points.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const double bytes = bytes_of(points[i]) - bytes_of(points[j]);
      if (bytes != 0) slopes.push_back((seconds_of(points[i]) - seconds_of(points[j])) / bytes);
    }
  }
  return slopes;
}

UpdateLine through_origin(const std::vector<UpdatePoint>& points) {
  std::vector<double> ratios;
  for (const UpdatePoint& point : points) ratios.push_back(seconds_of(point) / bytes_of(point));
  return {Seconds(0), median(std::move(ratios))};
}

}  // namespace

UpdateLine update_line(const OptimizerProfile& optimizer) {
  std::vector<UpdatePoint> points = optimizer.parts;
  if (points.empty()) points.push_back({optimizer.parameters, optimizer.update});
  std::erase_if(points, [](const UpdatePoint& point) { return point.parameters.value <= 0; });
  if (points.empty()) return {};
  const std::vector<double> found = slopes(points);
  if (found.empty()) return through_origin(points);
  const double slope = std::max(0.0, median(found));
  std::vector<double> above;
  for (const UpdatePoint& point : points) above.push_back(seconds_of(point) - slope * bytes_of(point));
  const double fixed = median(std::move(above));
  return fixed < 0 ? through_origin(points) : UpdateLine{Seconds(fixed), slope};
}

}  // namespace pp

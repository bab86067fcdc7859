#include "libplan/search/exact/pareto.h"

#include <algorithm>
#include <cmath>

#include "libplan/cost/constants.h"

namespace pp::plan {
namespace {

/// A point not far above the least load, in steps that double: a probe is the dearer the more it admits.
PointTest first_above(double least_load, const std::function<PointTest(double)>& test) {
  constexpr double kFirstStep = 1. / 64;
  PointTest found = test(least_load);
  for (double step = kFirstStep; !found.feasible() && found.next < kInfinity; step *= 2)
    found = test(found.next * (1 + step));
  return found;
}

}  // namespace

PointTest point_within(double most, double base, const std::function<PointTest(double)>& test) {
  PointTest found = test(most - base);
  while (found.feasible() && found.point.load + (base + found.point.sum) > most)  // less sum, more load
    found = test(std::min(std::nextafter(found.point.load, 0.0), most - base - found.point.sum));
  return found;
}

ParetoFront enumerate_points(double least_load, double base, const std::function<PointTest(double)>& test,
                             double most) {
  ParetoFront front;
  const PointTest first = most < kInfinity ? point_within(most, base, test) : first_above(least_load, test);
  if (!first.feasible()) return front;
  PointTest found = test(first.point.load + first.point.sum);  // more load alone exceeds what `first` reaches
  while (found.feasible()) {
    const double load = found.point.load;
    const double rest = base + found.point.sum;
    front.objective = std::min(front.objective, load + rest);
    front.points.push_back(std::move(found.point));
    if (least_load + rest >= front.objective) break;
    found = test(std::nextafter(load, 0.0));
  }
  return front;
}

Point least_objective(double least_load, double base, const std::function<PointTest(double)>& test,
                      double most) {
  /// Loads from `low` up to, and without, `high` may have points, whose sums are not below `sum`.
  struct Open {
    double low, high, sum;
  };
  PointTest found = most < kInfinity ? point_within(most, base, test) : first_above(least_load, test);
  if (!found.feasible()) return {};
  Point best = found.point;
  const auto objective = [&] { return best.load + (base + best.sum); };
  const auto meet = [&](const Point& point) {
    if (point.load + (base + point.sum) < objective()) best = point;
  };
  std::vector<Open> open{{least_load, std::nextafter(best.load + best.sum, kInfinity), 0}};
  while (!open.empty()) {
    const Open here = open.back();
    open.pop_back();
    if (here.low >= here.high || here.low + (base + here.sum) >= objective()) continue;
    const PointTest top = test(std::nextafter(here.high, 0.0));
    if (!top.feasible()) continue;
    meet(top.point);
    const auto [partition, load, sum] = top.point;
    if (here.low >= load || here.low + (base + sum) >= objective()) continue;
    const double middle = here.low + (load - here.low) / 2;
    const PointTest half = test(middle);
    if (half.feasible()) meet(half.point);
    open.push_back({std::nextafter(middle, kInfinity), load, sum});
    if (half.feasible()) open.push_back({here.low, half.point.load, half.point.sum});
  }
  return best;
}

}  // namespace pp::plan

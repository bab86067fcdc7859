// The table of all intervals of layers that hierarchical searches nest: A(i, j, m), the least bottleneck of
// layers [i, j) as a pipeline on exactly m machines,
//
//   A(i, j, m) = min( whole(i, j, m),  min over i < k < j, 1 <= q < m of max( A(i, k, m-q), last(k, j, q) ) ).
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "libprofile/core/index.h"

namespace pp::plan {

/// What stages cost; infinity: not allowed. Nothing has to be monotone, but the closer these are to it the
/// faster the table.
class IntervalCost {
 public:
  virtual ~IntervalCost() = default;
  /// The interval as one stage on `machines`.
  virtual double whole(int begin, int end, int machines) const = 0;
  /// The last of several stages, with its cuts.
  virtual double last(int begin, int end, int machines) const = 0;
  /// The number of machines, those of the stages in front included, from which on last() is allowed.
  virtual int least_used(int begin, int end, int machines) const = 0;
};

struct IntervalSpace {
  int layers = 0;
  int machines = 0;
  bool all_starts = true;  ///< false: only intervals that begin at 0
  /// Only values below count; all others are infinite.
  double bound = std::numeric_limits<double>::infinity();
};

class IntervalTable {
 public:
  /// Bit-equal to the recurrence. A split is looked at only where its last stage and its front can both be
  /// better than what is known, which two binary searches in running minima tell: O(N^2 m^2 log N) in place of
  /// O(N^3 m^2) when costs rise with the interval, whatever its cuts. O(N^2 m) memory.
  IntervalTable(const IntervalSpace& space, const IntervalCost& cost);

  /// Infinity: not possible on exactly `machines` machines, or not below the bound.
  double value(int begin, int end, int machines) const { return values_[index(begin, end, machines)]; }

 private:
  /// The ends of one begin lie together.
  std::size_t index(int begin, int end, int machines) const {
    const auto row = at(machines - 1) * at(starts_) + at(begin);
    return row * at(layers_ + 1) + at(end);
  }

  int layers_;
  int starts_;
  std::vector<double> values_;
};

}  // namespace pp::plan

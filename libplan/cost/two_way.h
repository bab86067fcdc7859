// Whose doing it is that operations take longer than promised: of the layers, or of the device that ran them.
#pragma once

#include <vector>

namespace pp::plan {

/// What the operations `row` took on `column`, over what was promised.
struct TwoWayCell {
  int row = 0;
  int column = 0;
  double ratio = 1;  ///< above 0
};

/// Rows are the operations of layers, the same at all times. A column is a device during one run: another run
/// may find it slower.
struct TwoWayTable {
  int rows = 0;
  std::vector<int> devices;  ///< of each column, any numbers
  std::vector<TwoWayCell> cells;
};

/// A cell is the product of its row's and its column's factor, but for noise; 1 where nothing was measured.
struct TwoWayFactors {
  std::vector<double> rows;
  std::vector<double> columns;  ///< above 1: the device is slower than promised
};

/// The factor by which promises may be off without a device being at fault.
inline constexpr double kUsualError = 1.4;

/// Median polish of the logarithms (J. W. Tukey, Exploratory Data Analysis, 1977, ch. 11): medians of columns
/// and of rows are taken off in turn until none is left. Of two values in the middle the one nearer to the
/// promise counts, so that one kind of operation alone blames no device; their mean where all cells together
/// are closer to the factors so.
///
/// Only differences between columns that share rows, directly or through others, are measured; how much all of
/// such a group has in common may be the layers' or the devices'. The rules, the first that holds:
/// - Several devices ran the same layers: their lower median is as fast as promised, the rest is the layers'.
/// - One device ran them alone: what it has beyond kUsualError over what the machine's columns have in common
///   (their median) is the device's.
/// - All else is the layers'.
/// At most 200 sweeps of O(cells) each; two where nothing is off.
TwoWayFactors two_way_factors(const TwoWayTable& table);

}  // namespace pp::plan

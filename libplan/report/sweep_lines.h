// The rows of a sweep as lines over the number of micro-batches, and where lines that coincide are drawn.
// Internal to sweep_svg.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "libplan/report/sweep.h"

namespace pp::plan {

/// One schedule on one number of devices: positions in the lists of the sweep, and the rows by micro-batches.
struct SweepLine {
  std::size_t schedule = 0, devices = 0;
  std::vector<const SweepRow*> rows;

  /// Which row has the shortest step, the first of equals; none when no row has a plan.
  std::optional<std::size_t> fastest() const;
};

/// What a sweep varies. Refers into the rows.
struct SweepLines {
  std::vector<std::string> schedules;  ///< in the order of the rows, as devices
  std::vector<int> devices;
  std::vector<int> counts;  ///< of micro-batches, ascending
  std::vector<SweepLine> lines;
};

SweepLines sweep_lines(std::span<const SweepRow> rows);

/// For every row of every line its place beside the rows of other lines that would hide it, those at the same
/// micro-batches less than `near` pixels away: -0.5 and 0.5 of two, -1, 0 and 1 of three, 0 alone. `height` is
/// where a row is drawn, in pixels; rows without a height are not drawn.
std::vector<std::vector<double>> places_beside(
    const SweepLines& lines, double near, const std::function<std::optional<double>(const SweepRow&)>& height);

}  // namespace pp::plan

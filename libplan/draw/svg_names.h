// Which rows the SVG timeline has, and what stands beside them. Internal to it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/draw/timeline_rows.h"
#include "libplan/draw/timeline_svg.h"
#include "libplan/simulate/memory_curve.h"

namespace pp::plan {

/// The workers of one row, which draws the first of them. Ascending.
struct RowGroup {
  std::vector<std::size_t> workers;
  /// They do the same at the same times, on micro-batches of their own, and hold the same. Else they have the
  /// same stages and no more.
  bool alike = true;
};

/// Up to this number of workers have a row each, unless they are replicas of one stage that are alike.
inline constexpr std::size_t kUnfolded = 16;

/// Every worker in one group; groups by their first worker. More than kUnfolded: those of the same stages are
/// one. `memory` empty: not compared. O(operations).
std::vector<RowGroup> row_groups(const std::vector<TimelineRow>& rows, std::span<const MemoryCurve> memory);

/// Two lines: stages with their layers, and workers with their devices; as much of it as is known.
struct RowName {
  std::string stages, workers;
};
RowName row_name(const RowGroup& group, const TimelineRow& row, const SvgOptions& options);

/// `text` with dots at its end where it is wider than `pixels`.
std::string cut_to(const std::string& text, double pixels);

}  // namespace pp::plan

// Which rows the SVG timeline has, and what stands beside them. Internal to it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/draw/timeline_rows.h"
#include "libplan/draw/timeline_svg.h"
#include "libplan/simulate/memory_curve.h"

namespace pp::plan {

/// Workers that do the same at the same times on micro-batches of their own, and hold the same: replicas that
/// need one row only. Ascending.
using EqualWorkers = std::vector<std::size_t>;

/// Every worker in one group; groups by their first worker. `memory` empty: not compared. O(operations).
std::vector<EqualWorkers> equal_workers(const std::vector<TimelineRow>& rows,
                                        std::span<const MemoryCurve> memory);

/// Two lines: stages with their layers, and workers with their devices; as much of it as is known.
struct RowName {
  std::string stages, workers;
};
RowName row_name(const EqualWorkers& group, const TimelineRow& row, const SvgOptions& options);

/// `text` with dots at its end where it is wider than `pixels`.
std::string cut_to(const std::string& text, double pixels);

}  // namespace pp::plan

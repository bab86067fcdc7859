// A simulated step as an SVG picture: self-contained, without scripts or fonts, the same bytes for the same
// input.
#pragma once

#include <span>
#include <string>

#include "libplan/simulate/memory_curve.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

struct SvgOptions {
  std::string title;    ///< one line: model, schedule, sizes
  double width = 1200;  ///< pixels, at least 400
};

/// From top to bottom: title and figures; legend; a time axis with one row per worker, operations as boxes
/// (what fits of `F2.1` on them, the rest as tooltip), idle time hatched, its share at the right, messages as
/// arrows unless they are too many to follow; memory over time per worker, stacked by part, if `memory` has a
/// curve per worker and they hold anything. Stages of one worker differ in lightness.
///
/// Runs of operations that are too short to draw become one box, as high as they are busy: about 4 MB at most
/// for any number of operations on up to 1000 workers. O(operations).
std::string timeline_svg(const SimulationResult& result, std::span<const MemoryCurve> memory,
                         const SvgOptions& options);

}  // namespace pp::plan

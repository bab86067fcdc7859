// A sweep as a picture: step time, bubble and peak memory against micro-batches, one line per schedule and
// device count.
#pragma once

#include <span>
#include <string>

#include "libplan/report/sweep.h"

namespace pp::plan {

struct SweepSvgOptions {
  std::string title;
  double width = 800;  ///< pixels, at least 400
};

/// Colours tell schedules apart, dashes device counts; more than eight schedules or five device counts share
/// them, and the tooltip of a point names its own. Lines that coincide run side by side. Rings mark the fastest
/// point of each line, crosses along the upper edge the combinations without a plan, where lines are
/// interrupted; why stands below, by the numbers above the crosses. Micro-batches stand on a logarithmic axis,
/// time and bubble on linear ones from 0. Same rows, same bytes.
std::string sweep_svg(std::span<const SweepRow> rows, const SweepSvgOptions& options);

}  // namespace pp::plan

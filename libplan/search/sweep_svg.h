// A sweep as a picture: step time against micro-batches, one line per schedule and device count.
#pragma once

#include <span>
#include <string>

#include "libplan/search/sweep.h"

namespace pp::plan {

struct SweepSvgOptions {
  std::string title;
  double width = 800;  ///< pixels, at least 400
};

/// Colours tell schedules apart, dashes device counts; more than eight schedules or five device counts share
/// them, and the tooltip of a point names its own. Lines that coincide show as rims, since earlier schedules
/// are drawn wider. Micro-batches stand on a logarithmic axis, time on a linear one from 0; a line is
/// interrupted where a combination has no plan. Same rows, same bytes.
std::string sweep_svg(std::span<const SweepRow> rows, const SweepSvgOptions& options);

}  // namespace pp::plan

// The lower half of the SVG timeline: memory over time as stacked areas. Internal to it.
#pragma once

#include <span>
#include <string>

#include "libplan/simulate/memory_curve.h"
#include "libplan/simulate/svg_layout.h"

namespace pp::plan {

/// Classes `m0`, `m1`, ... of kMemoryParts.
std::string memory_css();

/// Pixels from `y` that draw_memory() takes for so many workers.
double memory_height(std::size_t workers);

/// One band per worker, all to one scale; peaks at the right. O(steps + workers * width) bytes and time, at
/// most about 1 MB.
void draw_memory(SvgWriter& svg, const SvgLayout& layout, std::span<const MemoryCurve> curves, double y);

}  // namespace pp::plan

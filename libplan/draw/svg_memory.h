// The lower half of the SVG timeline: memory over time as stacked areas. Internal to it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/draw/svg_layout.h"
#include "libplan/simulate/memory_curve.h"

namespace pp::plan {

struct MemoryBand {
  std::string name;
  const MemoryCurve* curve = nullptr;
  Bytes limit;  ///< what the device holds; 0: unknown
};

/// Classes `m0`, `m1`, ... of kMemoryParts.
std::string memory_css();

/// Pixels from `y` that draw_memory() takes for so many bands.
double memory_height(std::size_t bands);

/// All bands to one scale, whose full height is `full` at least; peaks and limits at the right; a limit that is
/// not far above everything that is held is a line. O(steps + bands * width) bytes and time, at most about 1
/// MB.
void draw_memory(SvgWriter& svg, const SvgLayout& layout, const std::vector<MemoryBand>& bands, double y,
                 Bytes full = {});

}  // namespace pp::plan

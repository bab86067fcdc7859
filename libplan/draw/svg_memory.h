// The lower half of the SVG timeline: memory over time as stacked areas. Internal to it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/draw/svg_labels.h"
#include "libplan/simulate/memory_walk.h"

namespace pp::plan {

struct MemoryBand {
  std::string name;
  const MemoryCurve* curve = nullptr;
  Bytes limit;  ///< what the device holds; 0: unknown
};

/// Of a part of kMemoryParts: greys for what is always there, colours for what comes and goes.
Rgb memory_color(std::size_t part);

/// Classes `m0`, `m1`, ... of kMemoryParts.
std::string memory_css();

/// What the full height of a band stands for: the largest of what is held and of the limits near it.
Bytes memory_scale(const std::vector<MemoryBand>& bands);

/// Pixels from `y` that draw_memory() takes for `bands` bands.
double memory_height(std::size_t bands);

/// All bands to one scale, whose full height is `scale`; peaks and limits at the right; a limit within it is a
/// line. O(steps + bands * width) bytes and time, at most about 1 MB.
void draw_memory(SvgWriter& svg, const SvgLayout& layout, const std::vector<MemoryBand>& bands, double y,
                 Bytes scale);

}  // namespace pp::plan

// The legend of the SVG pictures. Internal to them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/draw/svg_layout.h"

namespace pp::plan {

enum class Swatch { box, line, ring, none };

struct LegendItem {
  std::string css;
  std::string label;
  Swatch swatch = Swatch::box;
  double x = 0, y = 0;  ///< of the label's line, set by place_legend()
};

/// A path's commands for a circle.
std::string svg_ring(double x, double y, double radius);

/// One after the other from `y` on, in as many lines as `width` asks for; returns the last line's y.
double place_legend(std::span<LegendItem> items, double y, double width);
void draw_legend(SvgWriter& svg, std::span<const LegendItem> items);

}  // namespace pp::plan

#include "libplan/draw/svg_legend.h"

namespace pp::plan {
namespace {

constexpr double kSwatch = 16;
constexpr double kLine = 20;

double label_offset(const LegendItem& item) { return item.swatch == Swatch::none ? 0 : kSwatch + 6; }

}  // namespace

std::string svg_ring(double x, double y, double radius) {
  const std::string r = svg_number(radius);
  const std::string across = svg_number(2 * radius);
  return "M" + svg_number(x - radius) + ' ' + svg_number(y) + "a" + r + ' ' + r + " 0 1 0 " + across + " 0a" +
         r + ' ' + r + " 0 1 0 -" + across + " 0Z";
}

double place_legend(std::span<LegendItem> items, double y, double width) {
  double x = SvgLayout::kLeft;
  for (LegendItem& item : items) {
    const double item_width = label_offset(item) + text_width(item.label) + 12;
    if (x > SvgLayout::kLeft && x + item_width > width) {
      x = SvgLayout::kLeft;
      y += kLine;
    }
    item.x = x;
    item.y = y;
    x += item_width;
  }
  return y;
}

void draw_legend(SvgWriter& svg, std::span<const LegendItem> items) {
  for (const LegendItem& item : items) {
    if (item.swatch == Swatch::box) svg.rect(item.x, item.y - 10, kSwatch, 12, item.css);
    if (item.swatch == Swatch::line) svg.line(item.x, item.y - 4, item.x + kSwatch, item.y - 4, item.css);
    if (item.swatch == Swatch::ring) svg.path(svg_ring(item.x + kSwatch / 2, item.y - 4, 6), item.css);
    svg.text(item.x + label_offset(item), item.y, "t", item.label);
  }
}

}  // namespace pp::plan

#include "libplan/draw/svg_memory.h"

#include <algorithm>
#include <array>

#include "libplan/draw/svg_labels.h"

namespace pp::plan {
namespace {

constexpr std::array<Rgb, kMemoryParts.size()> kColors{0x5E6B7A, 0x8D99A6, 0xB4BDC6, 0xD8DDE2,
                                                       0x7B5EA7, 0x2C8C99, 0xF2C14E};
constexpr double kHeading = 40;
constexpr double kGap = 6;
constexpr double kMostColumns = 20000;  ///< of all workers together: bounds the file

constexpr double kFarAbove = 2;  ///< a limit above so many times what is held would flatten the picture

double band_height(std::size_t bands) { return bands <= 8 ? 44 : bands <= 32 ? 26 : 14; }

std::string css_of(std::size_t part) { return "m" + std::to_string(part); }

bool occurs(const MemoryPart& part, const std::vector<MemoryBand>& bands) {
  for (const MemoryBand& band : bands) {
    for (const MemoryStep& step : *band.curve) {
      if (step.held.*part.bytes > Bytes(0)) return true;
    }
  }
  return false;
}

bool drawn(Bytes limit, Bytes highest) {
  return limit > Bytes(0) && static_cast<double>(limit.value) <= kFarAbove * static_cast<double>(highest.value);
}

void draw_heading(SvgWriter& svg, const SvgLayout& layout, const std::vector<MemoryBand>& bands, Bytes scale,
                  double y) {
  std::vector<LegendItem> items{{"", "memory, full height " + to_text(scale) + ":", Swatch::none}};
  for (std::size_t p = 0; p < kMemoryParts.size(); ++p) {
    if (occurs(kMemoryParts[p], bands)) items.push_back({css_of(p), std::string(kMemoryParts[p].name)});
  }
  if (std::ranges::any_of(bands,
                          [&](const MemoryBand& band) { return band.limit > Bytes(0) && band.limit <= scale; }))
    items.push_back({"limit", "limit of the device", Swatch::line});
  place_legend(items, y, layout.width);
  draw_legend(svg, items);
}

/// The stack below the top of one part, one height per column.
struct Band {
  double x = 0, base = 0, column = 0;
  double per_byte = 0;

  /// A closed outline with one horizontal piece per run of equal heights.
  std::string outline(std::span<const Bytes> stack) const {
    std::string data = "M" + svg_number(x) + ' ' + svg_number(base);
    for (std::size_t c = 0; c < stack.size(); ++c) {
      if (c > 0 && stack[c] == stack[c - 1]) continue;
      if (c > 0) data += "H" + svg_number(x + column * static_cast<double>(c));
      data += "V" + svg_number(base - per_byte * static_cast<double>(stack[c].value));
    }
    return data + "H" + svg_number(x + column * static_cast<double>(stack.size())) + "V" + svg_number(base) +
           "Z";
  }
};

/// `1.31 GiB: weights 1 GiB, saved 310 MiB` of the highest moment.
std::string describe(const MemoryParts& held) {
  std::string text = "peak " + to_text(total(held)) + ":";
  for (const MemoryPart& part : kMemoryParts) {
    if (held.*part.bytes > Bytes(0)) text += "\n" + std::string(part.name) + ' ' + to_text(held.*part.bytes);
  }
  return text;
}

/// Areas from the whole stack down to its lowest part, each over the one before.
void draw_band(SvgWriter& svg, const Band& band, std::span<const MemoryParts> samples,
               const std::string& tooltip) {
  std::vector<Bytes> stack;
  for (const MemoryParts& held : samples) stack.push_back(total(held));
  for (std::size_t p = kMemoryParts.size(); p-- > 0;) {
    bool any = false;
    for (const MemoryParts& held : samples) any |= held.*kMemoryParts[p].bytes > Bytes(0);
    if (!any) continue;
    svg.path(band.outline(stack), css_of(p), tooltip);
    for (std::size_t c = 0; c < stack.size(); ++c) stack[c] -= samples[c].*kMemoryParts[p].bytes;
  }
}

}  // namespace

Bytes memory_scale(const std::vector<MemoryBand>& bands) {
  Bytes most;
  for (const MemoryBand& band : bands) most = std::max(most, highest(std::span(band.curve, 1)));
  Bytes scale = most;
  for (const MemoryBand& band : bands) {
    if (drawn(band.limit, most)) scale = std::max(scale, band.limit);
  }
  return scale;
}

Rgb memory_color(std::size_t part) { return kColors[part]; }

std::string memory_css() {
  std::string css = ".limit{stroke:#c00;stroke-width:1.5;stroke-dasharray:5 3}\n";
  for (std::size_t p = 0; p < kColors.size(); ++p)
    css += "." + css_of(p) + "{fill:" + svg_color(kColors[p]) + "}\n";
  return css;
}

double memory_height(std::size_t bands) {
  return kHeading + static_cast<double>(bands) * (band_height(bands) + kGap);
}

void draw_memory(SvgWriter& svg, const SvgLayout& layout, const std::vector<MemoryBand>& bands, double y,
                 Bytes scale) {
  draw_heading(svg, layout, bands, scale, y + kHeading - 14);
  const double height = band_height(bands.size());
  const double share = std::max(100.0, kMostColumns / static_cast<double>(bands.size()));
  const int columns = static_cast<int>(std::min(layout.plot(), share));
  Band area{layout.left, y + kHeading + height, layout.plot() / columns,
            height / static_cast<double>(scale.value)};
  for (const MemoryBand& band : bands) {
    const std::vector<MemoryParts> samples = sample(*band.curve, layout.makespan, columns);
    const auto peak = std::ranges::max_element(samples, {}, total);
    const bool limited = band.limit > Bytes(0);
    const bool two_lines = limited && height >= 26;
    const double middle = area.base - height / 2 + 4;
    const double right = layout.width - SvgLayout::kRight;
    svg.rect(layout.left, area.base - height, layout.plot(), height, "bg");
    draw_band(svg, area, samples, describe(*peak));
    if (limited && band.limit <= scale) {
      const double at = area.base - area.per_byte * static_cast<double>(band.limit.value);
      svg.line(layout.left, at, right, at, "limit", "limit of the device: " + to_text(band.limit));
    }
    svg.text(layout.left - 8, middle, "t", cut_to(band.name, layout.left - 12), TextAnchor::end);
    svg.text(right + 8, middle - (two_lines ? 6 : 0), "t", "peak " + to_text(total(*peak)));
    if (two_lines) svg.text(right + 8, middle + 7, "w", "of " + to_text(band.limit));
    area.base += height + kGap;
  }
}

}  // namespace pp::plan

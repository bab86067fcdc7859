#include "libplan/simulate/svg_memory.h"

#include <array>

#include "libplan/simulate/svg_legend.h"

namespace pp::plan {
namespace {

/// What is always there in greys, what comes and goes in colours.
constexpr std::array<Rgb, kMemoryParts.size()> kColors{0x5E6B7A, 0x8D99A6, 0xB4BDC6, 0xD8DDE2,
                                                       0x7B5EA7, 0x2C8C99, 0xF2C14E};
constexpr double kHeading = 40;
constexpr double kGap = 6;
constexpr double kMostColumns = 20000;  ///< of all workers together: bounds the file

double band_height(std::size_t workers) { return workers <= 8 ? 44 : workers <= 32 ? 26 : 14; }

std::string css_of(std::size_t part) { return "m" + std::to_string(part); }

bool occurs(const MemoryPart& part, std::span<const MemoryCurve> curves) {
  for (const MemoryCurve& curve : curves) {
    for (const MemoryStep& step : curve) {
      if (step.held.*part.bytes > Bytes(0)) return true;
    }
  }
  return false;
}

void draw_heading(SvgWriter& svg, const SvgLayout& layout, std::span<const MemoryCurve> curves, double y) {
  std::vector<LegendItem> items{{"", "memory, full height " + to_text(highest(curves)) + ":", Swatch::none}};
  for (std::size_t p = 0; p < kMemoryParts.size(); ++p) {
    if (occurs(kMemoryParts[p], curves)) items.push_back({css_of(p), std::string(kMemoryParts[p].name)});
  }
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

std::string memory_css() {
  std::string css;
  for (std::size_t p = 0; p < kColors.size(); ++p)
    css += "." + css_of(p) + "{fill:" + svg_color(kColors[p]) + "}\n";
  return css;
}

double memory_height(std::size_t workers) {
  return kHeading + static_cast<double>(workers) * (band_height(workers) + kGap);
}

void draw_memory(SvgWriter& svg, const SvgLayout& layout, std::span<const MemoryCurve> curves, double y) {
  draw_heading(svg, layout, curves, y + kHeading - 14);
  const double height = band_height(curves.size());
  const double share = std::max(100.0, kMostColumns / static_cast<double>(curves.size()));
  const int columns = static_cast<int>(std::min(layout.plot(), share));
  Band band{SvgLayout::kLeft, y + kHeading + height, layout.plot() / columns,
            height / static_cast<double>(highest(curves).value)};
  for (std::size_t w = 0; w < curves.size(); ++w, band.base += height + kGap) {
    const std::vector<MemoryParts> samples = sample(curves[w], layout.makespan, columns);
    const auto peak = std::ranges::max_element(samples, {}, total);
    const double middle = band.base - height / 2 + 4;
    svg.rect(SvgLayout::kLeft, band.base - height, layout.plot(), height, "bg");
    draw_band(svg, band, samples, describe(*peak));
    svg.text(SvgLayout::kLeft - 8, middle, "t", "worker " + std::to_string(w), TextAnchor::end);
    svg.text(layout.width - SvgLayout::kRight + 8, middle, "t", "peak " + to_text(total(*peak)));
  }
}

}  // namespace pp::plan

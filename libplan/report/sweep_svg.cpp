#include "libplan/report/sweep_svg.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <utility>
#include <vector>

#include "libplan/draw/svg_labels.h"
#include "libplan/report/sweep.h"
#include "libprofile/core/text.h"

namespace pp::plan {
namespace {

/// Okabe and Ito's, those that are readable as thin lines first.
constexpr std::array<Rgb, 8> kColors{0x0072B2, 0xE69F00, 0x009E73, 0xCC79A7,
                                     0xD55E00, 0x56B4E9, 0x000000, 0xF0E442};
constexpr std::array<std::string_view, 5> kDashes{"none", "9 4", "2 3", "12 3 2 3", "5 2"};
constexpr double kLeastWidth = 400;
constexpr double kStepHeight = 340;
constexpr double kBubbleHeight = 150;
constexpr double kMemoryHeight = 150;
constexpr double kReasonLine = 16;
constexpr double kBetween = 40;  ///< from one plot to the next
constexpr double kLeft = SvgLayout::kLeft;
constexpr double kRight = 32;
constexpr double kInset = 18;  ///< of the first and last point from the frame; crosses have it at the top
constexpr double kFirstLegendLine = 72;
constexpr double kMarker = 7;
constexpr double kBeside = 3;       ///< between lines that coincide
constexpr double kMostBeside = 48;  ///< for all markers of one place together

constexpr std::string_view kStyle = R"(text{font-size:11px;fill:#222}
.h{font-size:16px;font-weight:bold}
.s{font-size:12px;fill:#555}
.bg{fill:#f7f7f7}
.page{fill:#fff}
.grid{stroke:#000;stroke-opacity:.13}
.devices{stroke:#555}
.l{fill:none;stroke-width:2;stroke-linejoin:round}
.m{stroke:#fff;stroke-width:1}
.x{fill:none;stroke-width:2}
.best{fill:none;stroke:#222;stroke-width:1.5}
)";

std::string color_css(std::size_t schedule) { return "c" + std::to_string(schedule); }
std::string dash_css(std::size_t devices) { return "d" + std::to_string(devices); }

std::string percent_text(double share) { return svg_number(std::round(1000 * share) / 10) + " %"; }

/// `text` in lines of so many pixels, broken between words.
std::vector<std::string> lines_of(const std::string& text, double pixels) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    std::string longer = lines.empty() ? word : lines.back();
    if (!lines.empty()) longer.append(1, ' ').append(word);
    if (lines.empty() || text_width(longer) > pixels) {
      lines.push_back(word);
    } else {
      lines.back() = std::move(longer);
    }
  }
  return lines;
}

/// One plot: a figure of the rows against micro-batches.
struct Plot {
  double top = 0, height = 0;
  double largest = 0;  ///< stands kInset below the top
  double (*value)(const SweepFigures&) = nullptr;

  double bottom() const { return top + height; }
  double y(double figure) const { return bottom() - (largest > 0 ? figure / largest * (height - kInset) : 0); }
};

class SweepChart {
 public:
  SweepChart(std::span<const SweepRow> rows, const SweepSvgOptions& options)
      : rows_(rows),
        options_(options),
        width_(std::max(options.width, kLeastWidth)),
        sweep_(sweep_lines(rows)),
        step_{0, kStepHeight, 0, [](const SweepFigures& f) { return f.step.count(); }},
        bubble_{0, kBubbleHeight, 0, [](const SweepFigures& f) { return f.bubble_fraction; }},
        memory_{0, kMemoryHeight, 0, [](const SweepFigures& f) { return static_cast<double>(f.peak.value); }} {
    for (const SweepRow& row : rows_) {
      const SweepFigures* figures = row.figures();
      if (figures == nullptr) {
        const std::string& reason = std::get<SweepFailure>(row.result).reason;
        if (std::ranges::find(reasons_, reason) == reasons_.end()) reasons_.push_back(reason);
        continue;
      }
      memory_.largest = std::max(memory_.largest, static_cast<double>(figures->peak.value));
      step_.largest = std::max(step_.largest, figures->step.count());
      bubble_.largest = std::max(bubble_.largest, figures->bubble_fraction);
      if (fastest_ == nullptr || figures->step < fastest_->figures()->step) fastest_ = &row;
    }
    legend_ = legend_items();
    step_.top = place_legend(legend_, kFirstLegendLine, width_) + 40;
    bubble_.top = step_.bottom() + kBetween;
    memory_.top = bubble_.bottom() + kBetween;
    for (std::size_t r = 0; r < reasons_.size(); ++r) {
      for (std::string& line :
           lines_of("(" + std::to_string(r + 1) + ") " + reasons_[r], width_ - kLeft - kRight))
        reason_lines_.push_back(std::move(line));
    }
  }

  std::string text() const {
    const double height = reasons_top() + kReasonLine * static_cast<double>(reason_lines_.size());
    SvgWriter svg(width_, height, css());
    svg.rect(0, 0, width_, height, "page");
    svg.text(kLeft, 28, "h", options_.title);
    svg.text(kLeft, 48, "s", subtitle());
    draw_legend(svg, legend_);
    step_axis(svg);
    bubble_axis(svg);
    memory_axis(svg);
    count_axis(svg);
    lines(svg, memory_);
    lines(svg, bubble_);
    lines(svg, step_);
    failures(svg);
    reasons(svg);
    rings(svg);
    return std::move(svg).finish();
  }

 private:
  /// Without a plan of any count, where the count was free, a combination stands at the left edge.
  double x(int micro_batches) const {
    if (micro_batches == 0) return kLeft;
    const int least = sweep_.counts.front() > 0 ? sweep_.counts.front() : sweep_.counts[1];
    const double span = std::log2(sweep_.counts.back()) - std::log2(least);
    const double share = span > 0 ? (std::log2(micro_batches) - std::log2(least)) / span : 0.5;
    return kLeft + kInset + share * (width_ - kLeft - kRight - 2 * kInset);
  }

  std::string css() const {
    std::string css(kStyle);
    for (std::size_t s = 0; s < sweep_.schedules.size(); ++s) {
      const std::string color = svg_color(kColors[s % kColors.size()]);
      css += ".l." + color_css(s) + ",.x." + color_css(s) + "{stroke:" + color + "}\n";
      css += ".m." + color_css(s) + "{fill:" + color + "}\n";
    }
    for (std::size_t d = 0; d < sweep_.devices.size(); ++d)
      css += "." + dash_css(d) + "{stroke-dasharray:" + std::string(kDashes[d % kDashes.size()]) + "}\n";
    return css;
  }

  static std::string describe(const SweepRow& row) {
    return row.schedule + ", " + counted(row.devices, "device") + ", " +
           (row.micro_batches > 0 ? counted(row.micro_batches, "micro-batch") : "any micro-batches");
  }

  std::vector<LegendItem> legend_items() const {
    std::vector<LegendItem> items;
    for (std::size_t s = 0; s < sweep_.schedules.size(); ++s)
      items.push_back({"l " + color_css(s), sweep_.schedules[s], Swatch::line});
    for (std::size_t d = 0; d < sweep_.devices.size(); ++d)
      items.push_back({"devices " + dash_css(d), counted(sweep_.devices[d], "device"), Swatch::line});
    if (fastest_ != nullptr) {
      items.push_back(
          {"best",
           "fastest (of all: " + describe(*fastest_) + ", " + pp::to_text(fastest_->figures()->step) + ")",
           Swatch::ring});
    }
    return items;
  }

  std::string subtitle() const {
    const auto missing = std::ranges::count(rows_, nullptr, &SweepRow::figures);
    std::string text = "step, bubble and peak memory over micro-batches";
    if (missing > 0) {
      text += "; " + std::to_string(missing) + " of " + counted(std::ssize(rows_), "combination") +
              (missing == 1 ? " has" : " have") + " no plan (×, why below)";
    }
    return text;
  }

  void frame(SvgWriter& svg, const Plot& plot, const std::string& title) const {
    svg.rect(kLeft, plot.top, width_ - kLeft - kRight, plot.height, "bg");
    svg.text(kLeft - 8, plot.top - 12, "t", title, TextAnchor::end);
  }

  void tick(SvgWriter& svg, double y, const std::string& label) const {
    svg.line(kLeft, y, width_ - kRight, y, "grid");
    svg.text(kLeft - 8, y + 4, "t", label, TextAnchor::end);
  }

  void step_axis(SvgWriter& svg) const {
    const TimeAxis axis = time_axis(Seconds(step_.largest), 8);
    frame(svg, step_, "step, " + std::string(axis.unit));
    for (int t = 0; step_.largest > 0 && t <= axis.last; ++t)
      tick(svg, step_.y(axis.time(t).count()), axis.label(t));
  }

  /// Round shares, at most six.
  void bubble_axis(SvgWriter& svg) const {
    frame(svg, bubble_, "bubble");
    constexpr std::array kSteps{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1};
    const auto fits = [&](double step) { return bubble_.largest <= 5 * step; };
    const auto step = std::ranges::find_if(kSteps, fits);
    const double by = step == kSteps.end() ? 0.2 : *step;
    for (int t = 0; t * by <= bubble_.largest * (1 + 1e-9); ++t)
      tick(svg, bubble_.y(t * by), percent_text(t * by));
  }

  /// Round numbers of a unit of bytes, at most six.
  void memory_axis(SvgWriter& svg) const {
    double unit = 1;
    std::string name = "B";
    for (const char* larger : {"KiB", "MiB", "GiB", "TiB"}) {
      if (memory_.largest < 2 * 1024 * unit) break;
      unit *= 1024;
      name = larger;
    }
    frame(svg, memory_, "peak, " + name);
    if (memory_.largest <= 0) return;
    const double rough = memory_.largest / unit / 5;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double by = 10 * power;
    for (const double factor : {5.0, 2.0, 1.0}) {
      if (factor * power >= rough) by = factor * power;
    }
    for (int t = 0; t * by * unit <= memory_.largest * (1 + 1e-9); ++t)
      tick(svg, memory_.y(t * by * unit), svg_number(t * by));
  }

  void count_axis(SvgWriter& svg) const {
    double free_from = 0;  // labels that would touch are left out
    for (const int count : sweep_.counts) {
      for (const Plot& plot : {step_, bubble_, memory_})
        svg.line(x(count), plot.top, x(count), plot.bottom(), "grid");
      const std::string label = count > 0 ? std::to_string(count) : "any";
      const double half = text_width(label) / 2;
      if (x(count) - half < free_from) continue;
      svg.text(x(count), memory_.bottom() + 16, "t", label, TextAnchor::middle);
      free_from = x(count) + half + 4;
    }
    svg.text((kLeft + width_ - kRight) / 2, memory_.bottom() + 36, "t", "micro-batches", TextAnchor::middle);
  }

  /// Sideways from `x`, `place` of places_beside().
  double marker_x(const SweepRow& row, double place) const {
    const double most = kMostBeside / static_cast<double>(std::max<std::size_t>(sweep_.lines.size(), 1));
    return x(row.micro_batches) + place * std::min(kMarker + 1, most);
  }

  std::vector<std::vector<double>> places(const Plot& plot) const {
    return places_beside(sweep_, kBeside, [&](const SweepRow& row) -> std::optional<double> {
      if (row.figures() == nullptr) return std::nullopt;
      return plot.y(plot.value(*row.figures()));
    });
  }

  /// Where lines coincide they run side by side, and so do their markers.
  void lines(SvgWriter& svg, const Plot& plot) const {
    const std::vector<std::vector<double>> beside = places(plot);
    for (std::size_t l = 0; l < sweep_.lines.size(); ++l) line(svg, plot, sweep_.lines[l], beside[l]);
  }

  void line(SvgWriter& svg, const Plot& plot, const SweepLine& line, const std::vector<double>& beside) const {
    std::string data;
    char command = 'M';
    for (std::size_t r = 0; r < line.rows.size(); ++r) {
      const SweepFigures* figures = line.rows[r]->figures();
      if (figures != nullptr) {
        data += command + svg_number(x(line.rows[r]->micro_batches)) + ' ' +
                svg_number(plot.y(plot.value(*figures)) + kBeside * beside[r]);
      }
      command = figures != nullptr ? 'L' : 'M';
    }
    if (data.empty()) return;
    svg.path(data, "l " + color_css(line.schedule) + ' ' + dash_css(line.devices));
    for (std::size_t r = 0; r < line.rows.size(); ++r) {
      const SweepRow& row = *line.rows[r];
      if (row.figures() == nullptr) continue;
      svg.rect(marker_x(row, beside[r]) - kMarker / 2, plot.y(plot.value(*row.figures())) - kMarker / 2,
               kMarker, kMarker, "m " + color_css(line.schedule), tooltip(row));
    }
  }

  static std::string tooltip(const SweepRow& row) {
    const SweepFigures& figures = *row.figures();
    return describe(row) + ": " + pp::to_text(figures.step) + ", bubble " +
           percent_text(figures.bubble_fraction) + "\nstages " + figures.stages + ", replicas " +
           figures.replicas + "\npeak " + to_text(figures.peak);
  }

  /// Combinations without a plan: crosses along the upper edge, their reasons as tooltips.
  void failures(SvgWriter& svg) const {
    const double y = step_.top + kInset / 2;
    const auto beside = places_beside(sweep_, kBeside, [&](const SweepRow& row) -> std::optional<double> {
      return row.figures() == nullptr ? std::optional(y) : std::nullopt;
    });
    for (std::size_t l = 0; l < sweep_.lines.size(); ++l) {
      for (std::size_t r = 0; r < sweep_.lines[l].rows.size(); ++r) {
        const SweepRow& row = *sweep_.lines[l].rows[r];
        const auto* failure = std::get_if<SweepFailure>(&row.result);
        if (failure == nullptr) continue;
        svg.path(cross(marker_x(row, beside[l][r]), y), "x " + color_css(sweep_.lines[l].schedule),
                 describe(row) + ": " + std::string(status_of(row)) + "\n" + failure->reason);
      }
    }
  }

  double reasons_top() const { return memory_.bottom() + 48; }

  /// Their numbers above the counts that they concern, and what they say below the plots.
  void reasons(SvgWriter& svg) const {
    for (const int count : sweep_.counts) {
      std::string numbers;
      for (std::size_t r = 0; r < reasons_.size(); ++r) {
        const auto concerns = [&](const SweepRow& row) {
          const auto* failure = std::get_if<SweepFailure>(&row.result);
          return failure != nullptr && row.micro_batches == count && failure->reason == reasons_[r];
        };
        if (std::ranges::any_of(rows_, concerns))
          numbers += (numbers.empty() ? "" : ", ") + std::to_string(r + 1);
      }
      if (!numbers.empty()) svg.text(x(count), step_.top - 5, "t", "(" + numbers + ")", TextAnchor::middle);
    }
    for (std::size_t l = 0; l < reason_lines_.size(); ++l)
      svg.text(kLeft, reasons_top() + kReasonLine * (static_cast<double>(l) + 0.5), "t", reason_lines_[l]);
  }

  static std::string cross(double x, double y) {
    const std::string left = svg_number(x - 3);
    const std::string right = svg_number(x + 3);
    const std::string up = svg_number(y - 3);
    const std::string down = svg_number(y + 3);
    return "M" + left + ' ' + up + "L" + right + ' ' + down + "M" + right + ' ' + up + "L" + left + ' ' + down;
  }

  /// Around the fastest marker of every line.
  void rings(SvgWriter& svg) const {
    const std::vector<std::vector<double>> beside = places(step_);
    for (std::size_t l = 0; l < sweep_.lines.size(); ++l) {
      const auto best = sweep_.lines[l].fastest();
      if (!best) continue;
      const SweepRow& row = *sweep_.lines[l].rows[*best];
      svg.path(svg_ring(marker_x(row, beside[l][*best]), step_.y(row.figures()->step.count()), kMarker),
               "best");
    }
  }

  std::span<const SweepRow> rows_;
  const SweepSvgOptions& options_;
  double width_;
  SweepLines sweep_;
  Plot step_, bubble_, memory_;
  std::vector<std::string> reasons_;       ///< why combinations have no plan, each once
  std::vector<std::string> reason_lines_;  ///< the same as lines of the picture
  const SweepRow* fastest_ = nullptr;
  std::vector<LegendItem> legend_;
};

}  // namespace

std::string sweep_svg(std::span<const SweepRow> rows, const SweepSvgOptions& options) {
  return SweepChart(rows, options).text();
}

}  // namespace pp::plan

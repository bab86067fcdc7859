#include "libplan/search/sweep_svg.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "libplan/simulate/svg_layout.h"
#include "libplan/simulate/svg_legend.h"

namespace pp::plan {
namespace {

/// Okabe and Ito's, those that are readable as thin lines first.
constexpr std::array<Rgb, 8> kColors{0x0072B2, 0xE69F00, 0x009E73, 0xCC79A7,
                                     0xD55E00, 0x56B4E9, 0x000000, 0xF0E442};
constexpr std::array<std::string_view, 5> kDashes{"none", "9 4", "2 3", "12 3 2 3", "5 2"};
constexpr double kLeastWidth = 400;
constexpr double kPlotHeight = 340;
constexpr double kLeft = SvgLayout::kLeft;
constexpr double kRight = 32;
constexpr double kInset = 18;  ///< of the first and last point from the frame
constexpr double kFirstLegendLine = 72;
constexpr double kMarker = 7;

constexpr std::string_view kStyle = R"(text{font-size:11px;fill:#222}
.h{font-size:16px;font-weight:bold}
.s{font-size:12px;fill:#555}
.bg{fill:#f7f7f7}
.page{fill:#fff}
.grid{stroke:#000;stroke-opacity:.13}
.devices{stroke:#555}
.l{fill:none;stroke-linejoin:round}
.m{stroke:#fff;stroke-width:1}
)";

/// The distinct values of a member, in the order of the rows.
template <class Member>
auto distinct(std::span<const SweepRow> rows, Member SweepRow::*member) {
  std::vector<Member> values;
  for (const SweepRow& row : rows) {
    if (std::ranges::find(values, row.*member) == values.end()) values.push_back(row.*member);
  }
  return values;
}

std::string color_css(std::size_t schedule) { return "c" + std::to_string(schedule); }
std::string dash_css(std::size_t devices) { return "d" + std::to_string(devices); }

class SweepChart {
 public:
  SweepChart(std::span<const SweepRow> rows, const SweepSvgOptions& options)
      : rows_(rows),
        options_(options),
        width_(std::max(options.width, kLeastWidth)),
        schedules_(distinct(rows, &SweepRow::schedule)),
        devices_(distinct(rows, &SweepRow::devices)),
        counts_(distinct(rows, &SweepRow::micro_batches)) {
    std::ranges::sort(counts_);
    for (const SweepRow& row : rows_) {
      if (row.figures() != nullptr) longest_ = std::max(longest_, row.figures()->step);
    }
    axis_ = time_axis(longest_, 8);
    legend_ = legend_items();
    top_ = place_legend(legend_, kFirstLegendLine, width_) + 40;
  }

  std::string text() const {
    SvgWriter svg(width_, bottom() + 48, css());
    svg.rect(0, 0, width_, bottom() + 48, "page");
    svg.text(kLeft, 28, "h", options_.title);
    svg.text(kLeft, 48, "s", subtitle());
    draw_legend(svg, legend_);
    axes(svg);
    for (std::size_t s = 0; s < schedules_.size(); ++s) {
      for (std::size_t d = 0; d < devices_.size(); ++d) series(svg, s, d);
    }
    return std::move(svg).finish();
  }

 private:
  double bottom() const { return top_ + kPlotHeight; }

  double x(int micro_batches) const {
    const double span = std::log2(counts_.back()) - std::log2(counts_.front());
    const double share = span > 0 ? (std::log2(micro_batches) - std::log2(counts_.front())) / span : 0.5;
    return kLeft + kInset + share * (width_ - kLeft - kRight - 2 * kInset);
  }
  double y(Seconds step) const { return bottom() - step / longest_ * (kPlotHeight - kInset); }

  std::string css() const {
    std::string css(kStyle);
    for (std::size_t s = 0; s < schedules_.size(); ++s) {
      const std::string color = svg_color(kColors[s % kColors.size()]);
      const double wider = 1.5 * static_cast<double>(std::min<std::size_t>(schedules_.size() - 1 - s, 3));
      css += ".l." + color_css(s) + "{stroke:" + color + ";stroke-width:" + svg_number(2 + wider) + "}\n";
      css += ".m." + color_css(s) + "{fill:" + color + "}\n";
    }
    for (std::size_t d = 0; d < devices_.size(); ++d)
      css += "." + dash_css(d) + "{stroke-dasharray:" + std::string(kDashes[d % kDashes.size()]) + "}\n";
    return css;
  }

  std::vector<LegendItem> legend_items() const {
    std::vector<LegendItem> items;
    for (std::size_t s = 0; s < schedules_.size(); ++s)
      items.push_back({"l " + color_css(s), schedules_[s], Swatch::line});
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      const std::string label = std::to_string(devices_[d]) + (devices_[d] == 1 ? " device" : " devices");
      items.push_back({"devices " + dash_css(d), label, Swatch::line});
    }
    return items;
  }

  std::string subtitle() const {
    const auto missing = std::ranges::count(rows_, nullptr, &SweepRow::figures);
    std::string text = "step time against micro-batches per mini-batch";
    if (missing > 0)
      text +=
          "; " + std::to_string(missing) + " of " + std::to_string(rows_.size()) + " combinations have no plan";
    return text;
  }

  void axes(SvgWriter& svg) const {
    svg.rect(kLeft, top_, width_ - kLeft - kRight, kPlotHeight, "bg");
    svg.text(kLeft - 8, top_ - 12, "t", "step, " + std::string(axis_.unit), TextAnchor::end);
    for (int tick = 0; longest_.count() > 0 && tick <= axis_.last; ++tick) {
      const double at = y(axis_.time(tick));
      svg.line(kLeft, at, width_ - kRight, at, "grid");
      svg.text(kLeft - 8, at + 4, "t", axis_.label(tick), TextAnchor::end);
    }
    double free_from = 0;  // labels that would touch are left out
    for (const int count : counts_) {
      svg.line(x(count), top_, x(count), bottom(), "grid");
      const double half = text_width(std::to_string(count)) / 2;
      if (x(count) - half < free_from) continue;
      svg.text(x(count), bottom() + 16, "t", std::to_string(count), TextAnchor::middle);
      free_from = x(count) + half + 4;
    }
    svg.text((kLeft + width_ - kRight) / 2, bottom() + 36, "t", "micro-batches", TextAnchor::middle);
  }

  /// The rows of one line, by micro-batches.
  std::vector<const SweepRow*> rows_of(std::size_t schedule, std::size_t devices) const {
    std::vector<const SweepRow*> rows;
    for (const SweepRow& row : rows_) {
      if (row.schedule == schedules_[schedule] && row.devices == devices_[devices]) rows.push_back(&row);
    }
    std::ranges::stable_sort(rows, {}, &SweepRow::micro_batches);
    return rows;
  }

  void series(SvgWriter& svg, std::size_t schedule, std::size_t devices) const {
    const std::vector<const SweepRow*> rows = rows_of(schedule, devices);
    std::string data;
    char command = 'M';
    for (const SweepRow* row : rows) {
      const SweepFigures* figures = row->figures();
      if (figures == nullptr) {
        command = 'M';
        continue;
      }
      data += command + svg_number(x(row->micro_batches)) + ' ' + svg_number(y(figures->step));
      command = 'L';
    }
    if (data.empty()) return;
    svg.path(data, "l " + color_css(schedule) + ' ' + dash_css(devices));
    for (const SweepRow* row : rows) {
      if (row->figures() != nullptr) marker(svg, *row, "m " + color_css(schedule));
    }
  }

  void marker(SvgWriter& svg, const SweepRow& row, const std::string& css) const {
    const SweepFigures& figures = *row.figures();
    const std::string tooltip = row.schedule + ", devices " + std::to_string(row.devices) + ", micro-batches " +
                                std::to_string(row.micro_batches) + ": " + pp::to_text(figures.step) +
                                "\nstages " + figures.stages + ", replicas " + figures.replicas + "\npeak " +
                                to_text(figures.peak);
    svg.rect(x(row.micro_batches) - kMarker / 2, y(figures.step) - kMarker / 2, kMarker, kMarker, css, tooltip);
  }

  std::span<const SweepRow> rows_;
  const SweepSvgOptions& options_;
  double width_;
  std::vector<std::string> schedules_;
  std::vector<int> devices_;
  std::vector<int> counts_;  ///< ascending
  Seconds longest_{};
  TimeAxis axis_;
  std::vector<LegendItem> legend_;
  double top_ = 0;
};

}  // namespace

std::string sweep_svg(std::span<const SweepRow> rows, const SweepSvgOptions& options) {
  return SweepChart(rows, options).text();
}

}  // namespace pp::plan

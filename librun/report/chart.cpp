#include "librun/report/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "libprofile/core/svg_writer.h"
#include "librun/report/html.h"

namespace pp::run {
namespace {

constexpr double kWidth = 480, kHeight = 230;
constexpr double kTop = 10, kRight = 14, kBottom = 38;
constexpr double kFont = 12;
constexpr std::size_t kMostPoints = 480;
constexpr double kMost = 1e100;  ///< differences and sums of such numbers are numbers

using Points = std::vector<std::pair<double, double>>;

/// Numbers of one unit, as axes show them.
struct Unit {
  double size = 1;
  std::string name;
};

Unit unit_of(ChartUnit kind, double largest) {
  if (kind == ChartUnit::share) return {0.01, "%"};
  if (kind == ChartUnit::seconds)
    return largest < 1e-3 ? Unit{1e-6, "us"} : largest < 10 ? Unit{1e-3, "ms"} : Unit{1, "s"};
  if (kind != ChartUnit::bytes) return {};
  Unit unit{1, "B"};
  for (const char* name : {"KiB", "MiB", "GiB", "TiB"}) {
    if (largest < 2 * 1024 * unit.size) break;
    unit = {1024 * unit.size, name};
  }
  return unit;
}

/// Ticks at multiples of 1, 2 or 5 times a power of ten.
struct Axis {
  double least = 0, most = 1, step = 1;
  double share(double value) const { return std::clamp((value - least) / (most - least), 0.0, 1.0); }
};

Axis axis_over(double least, double most, int ticks) {
  if (most <= least) {
    const double margin = std::max(std::abs(most) * 0.1, 1e-12);
    least -= margin;
    most += margin;
  }
  const double rough = (most - least) / ticks;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  return {std::floor(least / step + 1e-9) * step, std::ceil(most / step - 1e-9) * step, step};
}

std::string label(double value, double step) { return number_text(std::abs(value) < step * 1e-6 ? 0 : value); }

/// Finite ones; neighbours are joined where there are many.
Points drawable(const Points& points) {
  Points finite;
  for (const auto& [x, y] : points) {
    if (std::isfinite(x) && std::isfinite(y)) finite.emplace_back(x, std::clamp(y, -kMost, kMost));
  }
  const std::size_t joined = (finite.size() + kMostPoints - 1) / kMostPoints;
  if (joined < 2) return finite;
  Points means;
  for (std::size_t first = 0; first < finite.size(); first += joined) {
    const std::size_t count = std::min(joined, finite.size() - first);
    double y = 0;
    for (std::size_t i = first; i < first + count; ++i) y += finite[i].second / static_cast<double>(count);
    means.emplace_back(finite[first + count - 1].first, y);
  }
  return means;
}

class Plot {
 public:
  explicit Plot(const Chart& chart) : chart_(chart) {
    double least = std::numeric_limits<double>::max(), most = std::numeric_limits<double>::lowest();
    double first = chart.first_x, last = chart.last_x;
    const auto reach = [&](double y) {
      least = std::min(least, y);
      most = std::max(most, y);
    };
    for (const Curve& curve : chart.curves) {
      curves_.push_back(drawable(curve.points));
      for (const auto& [x, y] : curves_.back()) {
        reach(chart.most > 0 ? std::min(y, chart.most) : y);
        first = std::min(first, x);
        last = std::max(last, x);
        empty_ = false;
      }
    }
    if (empty_) return;
    for (const ChartLevel& level : chart.levels) reach(level.value);
    if (chart.from_zero) reach(0);
    unit_ = unit_of(chart.unit, std::max(std::abs(least), std::abs(most)));
    y_ = axis_over(least / unit_.size, most / unit_.size, 4);
    x_ = {first, last > first ? last : first + 1, axis_over(first, last, 5).step};
    x_.step = std::max(1.0, x_.step);  // steps and epochs are whole
    double widest = 0;
    for (double tick = y_.least; tick <= y_.most + y_.step / 2; tick += y_.step)
      widest = std::max(widest, text_width(label(tick, y_.step), kFont));
    left_ = widest + 12;
  }

  bool empty() const { return empty_; }
  const std::string& unit() const { return unit_.name; }

  std::string svg() const {
    SvgWriter svg(kWidth, kHeight, "");
    for (double tick = y_.least; tick <= y_.most + y_.step / 2; tick += y_.step) {
      svg.line(left_, y(tick * unit_.size), kWidth - kRight, y(tick * unit_.size), "grid");
      svg.text(left_ - 6, y(tick * unit_.size) + 4, "t", label(tick, y_.step), TextAnchor::end);
    }
    for (double tick = std::ceil(x_.least / x_.step) * x_.step; tick <= x_.most * (1 + 1e-12);
         tick += x_.step) {
      svg.line(x(tick), kHeight - kBottom, x(tick), kHeight - kBottom + 4, "tick");
      svg.text(x(tick), kHeight - kBottom + 17, "t", label(tick, x_.step), TextAnchor::middle);
    }
    svg.text((left_ + kWidth - kRight) / 2, kHeight - 5, "t", chart_.x_title, TextAnchor::middle);
    for (const ChartLevel& level : chart_.levels)
      svg.line(left_, y(level.value), kWidth - kRight, y(level.value), "level " + level.css, level.name);
    for (std::size_t c = 0; c < curves_.size(); ++c) draw(svg, chart_.curves[c], curves_[c]);
    return std::move(svg).finish();
  }

 private:
  double x(double value) const { return left_ + x_.share(value) * (kWidth - kRight - left_); }
  double y(double value) const {
    return kHeight - kBottom - y_.share(value / unit_.size) * (kHeight - kBottom - kTop);
  }

  void draw(SvgWriter& svg, const Curve& curve, const Points& points) const {
    const std::string color = " c" + std::to_string(curve.color);
    std::string path;
    for (const auto& [at, value] : points)
      path += (path.empty() ? "M" : "L") + svg_number(x(at)) + ' ' + svg_number(y(value));
    if (points.size() > 1) svg.path(path, "curve" + color, curve.name);
    if (!curve.dots && points.size() > 1) return;
    constexpr double kDot = 5;
    for (const auto& [at, value] : points)
      svg.rect(x(at) - kDot / 2, y(value) - kDot / 2, kDot, kDot, "dot" + color,
               curve.name + ", " + chart_.x_title + ' ' + number_text(at) + ": " +
                   number_text(value / unit_.size) + ' ' + unit_.name);
  }

  const Chart& chart_;
  std::vector<Points> curves_;
  bool empty_ = true;
  Unit unit_;
  Axis x_, y_;
  double left_ = 0;
};

}  // namespace

std::string chart_html(const Chart& chart) {
  const Plot plot(chart);
  if (plot.empty()) return "";
  std::string keys;
  for (const Curve& curve : chart.curves)
    keys += element("span", "key c" + std::to_string(curve.color), xml_escaped(curve.name));
  for (const ChartLevel& level : chart.levels)
    keys += element("span", "key " + level.css, xml_escaped(level.name));
  const std::string title = chart.title + (plot.unit().empty() ? "" : ", " + plot.unit()) +
                            (chart.note.empty() ? "" : " (" + chart.note + ")");
  return element("figure", "chart",
                 element("figcaption", "", xml_escaped(title)) + element("div", "keys", keys) + plot.svg());
}

}  // namespace pp::run

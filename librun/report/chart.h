// Line charts for the report page, as SVG that takes its colours and font from the page's style. The numbers
// may be any: what is not finite is left out.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace pp::run {

/// What the numbers of an axis are.
enum class ChartUnit { number, share, seconds, bytes };

struct Curve {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< by x
  int color = 0;                                  ///< class `c0` to `c7` of the page
  bool dots = false;                              ///< a dot at each point besides the line
};

/// A horizontal line.
struct ChartLevel {
  std::string name;
  double value = 0;
  std::string css;  ///< of the page, such as `c0 dashed`
};

struct Chart {
  std::string title;
  std::string x_title;
  ChartUnit unit = ChartUnit::number;
  bool from_zero = false;  ///< else the axis begins near the least value
  std::vector<Curve> curves = {};
  std::vector<ChartLevel> levels = {};
  double first_x = 0, last_x = 0;  ///< what the axis reaches at least
  double most = 0;                 ///< what goes above it leaves the picture; 0: all of it is in
  std::string note = {};           ///< said behind the title
};

/// A <figure> with title, legend and picture; empty when there is nothing to draw. At most 480 points of a
/// curve are drawn: means of neighbours stand for more.
std::string chart_html(const Chart& chart);

}  // namespace pp::run

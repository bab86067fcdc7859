#include "librun/report/markup.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "libprofile/core/svg_writer.h"

namespace pp::run {
namespace {

std::string filled(double from, double to) {
  return "<i style=\"left:" + svg_number(100 * from) + "%;width:" + svg_number(100 * (to - from)) + "%\"></i>";
}

}  // namespace

std::string element(std::string_view tag, std::string_view css, std::string_view inner) {
  std::string text = "<" + std::string(tag);
  if (!css.empty()) text.append(" class=\"").append(css).append("\"");
  return text.append(">").append(inner).append("</").append(tag).append(">\n");
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  char text[40];
  if (size >= 1e4 && size < 1e10) {
    std::snprintf(text, sizeof text, "%.0f", value);
  } else {
    std::snprintf(text, sizeof text, "%.4g", value);
  }
  return text;
}

std::string share_text(double share) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

std::string table_html(const std::vector<std::string>& titles,
                       const std::vector<std::vector<std::string>>& rows, std::size_t texts) {
  const auto cells = [&](const char* tag, const std::vector<std::string>& values) {
    std::string line;
    for (std::size_t c = 0; c < values.size(); ++c) line += element(tag, c < texts ? "l" : "", values[c]);
    return element("tr", "", line);
  };
  std::string body;
  for (const auto& row : rows) body += cells("td", row);
  return element("div", "scroll",
                 element("table", "", element("thead", "", cells("th", titles)) + element("tbody", "", body)));
}

std::string bar_html(double share) { return element("span", "bar", filled(0, std::clamp(share, 0.0, 1.0))); }

std::string ratio_html(double ratio) {
  if (!(ratio > 0) || !std::isfinite(ratio)) return "";
  const double end = 0.5 + std::clamp(std::log2(ratio), -1.0, 1.0) / 2;
  return element("span", ratio > 1 ? "bar two over" : "bar two",
                 filled(std::min(end, 0.5), std::max(end, 0.5)));
}

}  // namespace pp::run

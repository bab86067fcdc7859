#include "apps/cli/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace pp::cli {
namespace {

/// Characters as shown: UTF-8 continuation bytes and colour sequences take no column.
std::size_t width_of(const std::string& text) {
  std::size_t width = 0;
  bool escape = false;
  for (char c : text) {
    if (c == '\033') escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++width;
    if (c == 'm') escape = false;
  }
  return width;
}

std::string fitted(const std::string& text, std::size_t width, Align align) {
  if (width_of(text) > width) return text.substr(0, width - 3) + "...";
  const std::string pad(width - width_of(text), ' ');
  return align == Align::left ? text + pad : pad + text;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::text(std::size_t max_width) const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, width_of(row[c]));
    widths.push_back(width);
  }
  const std::size_t total =
      std::accumulate(widths.begin(), widths.end(), std::size_t{0}) + 2 * (widths.size() - 1);
  std::size_t widest = widths.size();
  for (std::size_t c = 0; c < widths.size(); ++c) {
    if (columns_[c].align == Align::left && (widest == widths.size() || widths[c] > widths[widest])) widest = c;
  }
  if (total > max_width && widest < widths.size()) {
    const std::size_t excess = total - max_width;
    widths[widest] = std::max<std::size_t>(widths[widest] > excess ? widths[widest] - excess : 0, 8);
  }

  std::string out;
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      text.append(c > 0 ? "  " : "").append(fitted(cell_of(c), widths[c], columns_[c].align));
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  line([&](std::size_t c) { return columns_[c].title; });
  line([&](std::size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : rows_) line([&](std::size_t c) { return row[c]; });
  return out;
}

std::string cell(double value, int digits) {
  if (value == 0) return "0";
  const int before = static_cast<int>(std::floor(std::log10(std::abs(value)))) + 1;
  if (before > 7 || before < -6) {
    char text[32];
    std::snprintf(text, sizeof text, "%.*e", digits - 1, value);
    return text;
  }
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", std::max(0, digits - std::max(before, 1)), value);
  return text;
}

std::string percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

std::string colored(const std::string& text, bool color) {
  return color ? "\033[36m" + text + "\033[0m" : text;
}

std::string bar(double share, int width) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * 8 * width));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + kEighths[eighths % 8];
}

}  // namespace pp::cli

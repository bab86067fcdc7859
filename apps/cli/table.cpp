#include "apps/cli/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "apps/cli/terminal_text.h"

namespace pp::cli {
namespace {

/// Characters as shown: UTF-8 continuation bytes and colour sequences take no column.
std::size_t width_of(const std::string& text) {
  std::size_t width = 0;
  bool escape = false;
  for (char c : text) {
    if (c == kOwnEscape) escape = true;
    if (!escape && (static_cast<unsigned char>(c) & 0xC0U) != 0x80U) ++width;
    if (c == 'm') escape = false;
  }
  return width;
}

/// The characters that `width` columns have room for.
std::string fitting(const std::string& text, std::size_t width) {
  std::size_t end = 0;
  for (std::size_t next = 1; next <= text.size(); ++next) {
    const bool whole = next == text.size() || (static_cast<unsigned char>(text[next]) & 0xC0U) != 0x80U;
    if (whole && width_of(text.substr(0, next)) > width) break;
    if (whole) end = next;
  }
  return text.substr(0, end);
}

/// The middle left out: names say most at their ends.
std::string cut(const std::string& text, std::size_t width) {
  const std::size_t last = (width - 3) / 2;
  const std::string head = fitting(text, width - 3 - last);
  return head + "..." + text.substr(fitting(text, width_of(text) - last).size());
}

std::string fitted(const std::string& text, std::size_t width, Align align) {
  if (width_of(text) > width) return cut(text, width);
  const std::string pad(width - width_of(text), ' ');
  return align == Align::left ? text + pad : pad + text;
}

std::size_t total_of(const std::vector<std::size_t>& widths) {
  return std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1));
}

/// Broken behind spaces, commas and bars into lines of at most `width` columns; only a longer word exceeds
/// them.
std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
  std::vector<std::string> lines(1);
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find_first_of(" ,|", begin), text.size() - 1) + 1;
    const std::string word = text.substr(begin, end - begin);
    const std::size_t needed = width_of(word) - (word.ends_with(' ') ? 1 : 0);
    if (!lines.back().empty() && width_of(lines.back()) + needed > width) lines.emplace_back();
    lines.back() += word;
    begin = end;
  }
  for (std::string& line : lines) line.erase(line.find_last_not_of(' ') + 1);
  return lines;
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = escaped(cell, Keep::nothing);
  rows_.push_back(std::move(cells));
}

std::vector<std::size_t> Table::natural_widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    std::size_t width = width_of(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, width_of(row[c]));
    widths.push_back(width);
  }
  return widths;
}

std::size_t Table::width() const { return total_of(natural_widths()); }

std::vector<std::size_t> Table::widths(std::size_t max_width) const {
  std::vector<std::size_t> widths = natural_widths();
  for (std::size_t total = total_of(widths); total > max_width; --total) {
    std::size_t* widest = nullptr;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      const bool shrinks = columns_[c].align == Align::left && widths[c] > columns_[c].least;
      if (shrinks && (widest == nullptr || widths[c] > *widest)) widest = &widths[c];
    }
    if (widest == nullptr) break;
    --*widest;
  }
  return widths;
}

std::vector<std::string> Table::lines_of(const std::string& cell, std::size_t column, std::size_t width) const {
  if (columns_[column].overflow == Overflow::shorten) return {cell};
  return wrapped(cell, width);
}

std::string Table::text(std::size_t max_width) const {
  const std::vector<std::size_t> widths = this->widths(max_width);
  std::string out;
  const auto line = [&](const auto& cell_of) {
    std::string text;
    for (std::size_t c = 0; c < widths.size(); ++c)
      text.append(c > 0 ? "  " : "").append(fitted(cell_of(c), widths[c], columns_[c].align));
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + '\n';
  };
  line([&](std::size_t c) { return columns_[c].title; });
  line([&](std::size_t c) { return std::string(widths[c], '-'); });
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    std::size_t height = 1;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      cells.push_back(lines_of(row[c], c, widths[c]));
      height = std::max(height, cells.back().size());
    }
    for (std::size_t l = 0; l < height; ++l)
      line([&](std::size_t c) { return l < cells[c].size() ? cells[c][l] : std::string(); });
  }
  return out;
}

std::string cell(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  if (!std::isfinite(value)) return "-";
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

std::string clock(Seconds time) {
  const auto seconds = static_cast<long long>(std::clamp(std::ceil(time.count()), 0.0, 1e12));
  const long long days = seconds / 86400;
  const int hours = static_cast<int>(seconds / 3600 % 24), minutes = static_cast<int>(seconds / 60 % 60);
  char text[64];
  if (days > 0) {
    std::snprintf(text, sizeof text, "%lld d %02d:%02d:%02d", days, hours, minutes,
                  static_cast<int>(seconds % 60));
  } else if (hours > 0) {
    std::snprintf(text, sizeof text, "%d:%02d:%02d", hours, minutes, static_cast<int>(seconds % 60));
  } else {
    std::snprintf(text, sizeof text, "%d:%02d", minutes, static_cast<int>(seconds % 60));
  }
  return text;
}

std::string percent(double share) {
  if (!std::isfinite(share)) return "-";  // of nothing
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

std::string colored(const std::string& text, bool color) {
  return color ? with_own_colors("\033[36m") + text + with_own_colors("\033[0m") : text;
}

std::string bar(double share, int width) {
  static constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int eighths = static_cast<int>(std::lround(std::clamp(share, 0.0, 1.0) * 8 * width));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += "█";
  return text + kEighths[eighths % 8];
}

}  // namespace pp::cli

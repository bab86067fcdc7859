// Text tables for people: one unit per column, numbers right-aligned, at most 100 columns.
#pragma once

#include <string>
#include <vector>

#include "libprofile/core/units.h"

namespace pp::cli {

enum class Align { left, right };

/// What becomes of a left-aligned cell that is wider than its column.
enum class Overflow { shorten, wrap };

struct Column {
  std::string title;  ///< with its unit: `forward ms`
  Align align = Align::right;
  Overflow overflow = Overflow::shorten;
  std::size_t least = 8;  ///< characters that a left-aligned column keeps, if its cells have them
};

/// No left-aligned column that has it becomes narrower.
inline constexpr std::size_t kWhole = 1000;

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  /// One cell per column.
  void add(std::vector<std::string> cells);
  /// Columns of the terminal that nothing shortened would take.
  std::size_t width() const;
  /// Two spaces between columns, a rule under the titles. Where the table would exceed `max_width`, its widest
  /// left-aligned columns become narrower, but not below their least; their cells have `...` in the middle, or
  /// continue on the next line.
  std::string text(std::size_t max_width = 100) const;

 private:
  /// Per column, without the spaces between them.
  std::vector<std::size_t> natural_widths() const;
  std::vector<std::size_t> widths(std::size_t max_width) const;
  std::vector<std::string> lines_of(const std::string& cell, std::size_t column, std::size_t width) const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

/// A number for a table: `digits` significant digits, never an exponent below 1e7, so that columns of one unit
/// compare by eye.
std::string cell(double value, int digits = 4);
/// `1:05`, `2:01:05`, `3 d 02:01:05`
std::string clock(Seconds time);
/// `12.5 %`
std::string percent(double share);
/// `text` in the one accent colour of the tools, or as it is.
std::string colored(const std::string& text, bool color);
/// A bar of `width` cells filled in eighths.
std::string bar(double share, int width);

}  // namespace pp::cli

#include "libplan/report/sweep_lines.h"

#include <algorithm>

namespace pp::plan {
namespace {

/// The distinct values of a member, in the order of the rows.
template <class Member>
auto distinct(std::span<const SweepRow> rows, Member SweepRow::*member) {
  std::vector<Member> values;
  for (const SweepRow& row : rows) {
    if (std::ranges::find(values, row.*member) == values.end()) values.push_back(row.*member);
  }
  return values;
}

/// A row that is drawn at `height`.
struct Drawn {
  double height = 0;
  std::size_t line = 0, row = 0;
};

std::vector<Drawn> drawn_at(const SweepLines& lines, int count,
                            const std::function<std::optional<double>(const SweepRow&)>& height) {
  std::vector<Drawn> column;
  for (std::size_t l = 0; l < lines.lines.size(); ++l) {
    const std::vector<const SweepRow*>& rows = lines.lines[l].rows;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      if (rows[r]->micro_batches != count) continue;
      if (const auto at = height(*rows[r])) column.push_back({*at, l, r});
    }
  }
  std::ranges::stable_sort(column, {}, &Drawn::height);
  return column;
}

}  // namespace

std::optional<std::size_t> SweepLine::fastest() const {
  std::optional<std::size_t> best;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const SweepFigures* figures = rows[r]->figures();
    if (figures != nullptr && (!best || figures->step < rows[*best]->figures()->step)) best = r;
  }
  return best;
}

SweepLines sweep_lines(std::span<const SweepRow> rows) {
  SweepLines lines{distinct(rows, &SweepRow::schedule),
                   distinct(rows, &SweepRow::devices),
                   distinct(rows, &SweepRow::micro_batches),
                   {}};
  std::ranges::sort(lines.counts);
  for (std::size_t s = 0; s < lines.schedules.size(); ++s) {
    for (std::size_t d = 0; d < lines.devices.size(); ++d) {
      SweepLine line{s, d, {}};
      for (const SweepRow& row : rows) {
        if (row.schedule == lines.schedules[s] && row.devices == lines.devices[d]) line.rows.push_back(&row);
      }
      std::ranges::stable_sort(line.rows, {}, &SweepRow::micro_batches);
      lines.lines.push_back(std::move(line));
    }
  }
  return lines;
}

std::vector<std::vector<double>> places_beside(
    const SweepLines& lines, double near, const std::function<std::optional<double>(const SweepRow&)>& height) {
  std::vector<std::vector<double>> places;
  for (const SweepLine& line : lines.lines) places.emplace_back(line.rows.size(), 0.0);
  for (const int count : lines.counts) {
    const std::vector<Drawn> column = drawn_at(lines, count, height);
    for (std::size_t begin = 0, end = 0; begin < column.size(); begin = end) {
      for (end = begin + 1; end < column.size() && column[end].height - column[end - 1].height < near;) ++end;
      std::vector<Drawn> group(column.begin() + static_cast<std::ptrdiff_t>(begin),
                               column.begin() + static_cast<std::ptrdiff_t>(end));
      std::ranges::stable_sort(group, {}, &Drawn::line);  // the same order at every count: lines do not cross
      for (std::size_t k = 0; k < group.size(); ++k) {
        places[group[k].line][group[k].row] =
            static_cast<double>(k) - static_cast<double>(group.size() - 1) / 2;
      }
    }
  }
  return places;
}

}  // namespace pp::plan

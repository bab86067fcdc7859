#include "libplan/cost/two_way.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

/// Which cells each row or column has.
using Lines = std::vector<std::vector<std::size_t>>;

/// What stands for an even number of values.
enum class Middle {
  nearer_to_promise,  ///< that of the two in the middle which is nearer to 0
  mean                ///< of these two
};

/// 0 for none. Orders its copy.
double median(std::vector<double> values, Middle of_two) {
  if (values.empty()) return 0;
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, half);
  if (values.size() % 2 == 1) return *half;
  const double below = *std::max_element(values.begin(), half);
  if (of_two == Middle::mean) return (below + *half) / 2;
  return std::abs(below) <= std::abs(*half) ? below : *half;
}

double lower_median(std::vector<double> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::ranges::nth_element(values, half);
  return *half;
}

/// Takes the median of each line off its cells and adds it to the line's effect; the largest one.
double sweep(const Lines& lines, Middle of_two, std::vector<double>& rest, std::vector<double>& effects) {
  double largest = 0;
  for (std::size_t line = 0; line < lines.size(); ++line) {
    std::vector<double> values;
    for (const std::size_t cell : lines[line]) values.push_back(rest[cell]);
    const double effect = median(std::move(values), of_two);
    for (const std::size_t cell : lines[line]) rest[cell] -= effect;
    effects[line] += effect;
    largest = std::max(largest, std::abs(effect));
  }
  return largest;
}

double sum_of(const std::vector<double>& rest) {
  return std::accumulate(rest.begin(), rest.end(), 0.0,
                         [](double sum, double one) { return sum + std::abs(one); });
}

/// Logarithms of the factors, as medians leave them.
TwoWayFactors fit(const TwoWayTable& table) {
  constexpr int kSweeps = 100;
  constexpr double kNothing = 1e-9, kLess = 1e-6;
  TwoWayFactors factors{std::vector<double>(static_cast<std::size_t>(table.rows)),
                        std::vector<double>(table.devices.size())};
  Lines by_row(factors.rows.size()), by_column(factors.columns.size());
  std::vector<double> rest;
  for (const TwoWayCell& cell : table.cells) {
    by_row[at(cell.row)].push_back(rest.size());
    by_column[at(cell.column)].push_back(rest.size());
    rest.push_back(std::log(cell.ratio));
  }
  const auto polish = [&](Middle of_two) {
    for (int i = 0; i < kSweeps; ++i) {
      const double columns = sweep(by_column, of_two, rest, factors.columns);
      if (std::max(columns, sweep(by_row, of_two, rest, factors.rows)) < kNothing) break;
    }
    return sum_of(rest);
  };
  const double near_promise = polish(Middle::nearer_to_promise);
  const TwoWayFactors believed = factors;
  return polish(Middle::mean) < near_promise - kLess ? factors : believed;
}

/// Columns that share rows, directly or through others.
class Groups {
 public:
  explicit Groups(const TwoWayTable& table)
      : parent_(static_cast<std::size_t>(table.rows) + table.devices.size()) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
    for (const TwoWayCell& cell : table.cells)
      parent_[root(at(cell.row))] = root(static_cast<std::size_t>(table.rows) + at(cell.column));
  }
  std::size_t root(std::size_t line) const {
    while (parent_[line] != line) line = parent_[line];
    return line;
  }

 private:
  std::vector<std::size_t> parent_;
};

/// What the columns of a group have in common.
struct Shared {
  std::vector<double> columns;
  std::set<int> devices;
  double level = 0;
};

}  // namespace

TwoWayFactors two_way_factors(const TwoWayTable& table) {
  const auto rows = static_cast<std::size_t>(table.rows);
  TwoWayFactors factors = fit(table);
  const Groups groups(table);
  std::vector<Shared> shared(rows + table.devices.size());
  for (std::size_t c = 0; c < table.devices.size(); ++c) {
    if (std::ranges::count(table.cells, static_cast<int>(c), &TwoWayCell::column) == 0) continue;
    Shared& group = shared[groups.root(rows + c)];
    group.columns.push_back(factors.columns[c]);
    group.devices.insert(table.devices[c]);
  }
  std::vector<double> levels;
  for (Shared& group : shared) {
    if (group.columns.empty()) continue;
    group.level = lower_median(group.columns);
    levels.insert(levels.end(), group.columns.size(), group.level);
  }
  const double common = median(std::move(levels), Middle::nearer_to_promise);
  for (Shared& group : shared) {
    const bool alone = group.devices.size() == 1;
    if (alone && std::abs(group.level - common) > std::log(kUsualError)) group.level = common;
  }
  for (std::size_t r = 0; r < rows; ++r)
    factors.rows[r] = std::exp(factors.rows[r] + shared[groups.root(r)].level);
  for (std::size_t c = 0; c < table.devices.size(); ++c)
    factors.columns[c] = std::exp(factors.columns[c] - shared[groups.root(rows + c)].level);
  return factors;
}

}  // namespace pp::plan

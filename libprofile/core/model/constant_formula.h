// Constants of a call that a formula gives: masks by distance, positions, tables of sines. A causal mask for
// 4,096 positions is a line of the model instead of 16.8 million values. Keys: ../README.md, "Constants by
// formula".
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "libprofile/core/enum_names.h"
#include "libprofile/core/json_reader.h"
#include "libprofile/core/tensor_type.h"

namespace pp {

/// offset + the sum of steps[k] times index k: positions, grids, and with steps of 0 one value everywhere.
struct LinearFormula {
  double offset = 0;
  std::vector<double> steps;  ///< one per dimension
  bool operator==(const LinearFormula&) const = default;
};

/// `inside` where low <= distance <= high, else `outside`: causal masks and sliding windows.
struct BandFormula {
  LinearFormula distance;
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double inside = 1, outside = 0;
  bool operator==(const BandFormula&) const = default;
};

/// What stands in the columns of a table of waves: one function, or two by turns.
enum class WaveFunction { cos, sin, cos_sin, sin_cos };
template <>
struct EnumNames<WaveFunction> {
  static constexpr std::array table{
      std::pair{WaveFunction::cos, "cos"sv}, std::pair{WaveFunction::sin, "sin"sv},
      std::pair{WaveFunction::cos_sin, "cos_sin"sv}, std::pair{WaveFunction::sin_cos, "sin_cos"sv}};
};

/// Which columns share a frequency: none (c has frequency c), c and c + n of n frequencies, or 2 c and 2 c + 1.
enum class WaveColumns { single, halves, pairs };
template <>
struct EnumNames<WaveColumns> {
  static constexpr std::array table{std::pair{WaveColumns::single, "single"sv},
                                    std::pair{WaveColumns::halves, "halves"sv},
                                    std::pair{WaveColumns::pairs, "pairs"sv}};
};

/// factor * function(position * frequency), as rotary and sinusoidal positions are made. Index `position_dim`
/// is the position, the dimensions behind it are the columns, those before repeat the table. The angle is a
/// product in float32, as in the modules that these come from: at position 100,000 its rounding shows in the
/// third digit.
struct WaveFormula {
  int position_dim = 0;
  WaveFunction function = WaveFunction::cos;
  WaveColumns columns = WaveColumns::halves;
  std::vector<double> frequencies;
  double factor = 1;
  bool operator==(const WaveFormula&) const = default;
};

using ConstantFormula = std::variant<LinearFormula, BandFormula, WaveFormula>;

/// Most elements of a constant by formula: a mask of 65,536 positions.
inline constexpr std::int64_t kMostFormulaElements = std::int64_t{1} << 32;

/// Reads `"formula": {"kind": ...}` and checks it against the tensor's type. Throws pp::Error (data).
ConstantFormula read_constant_formula(ObjectReader& reader, const TensorType& type);
Json to_json(const ConstantFormula& formula);

double value_at(const LinearFormula& formula, std::span<const std::int64_t> index);
double value_at(const BandFormula& formula, std::span<const std::int64_t> index);
/// `column`: of the dimensions behind the position, in row order.
double value_at(const WaveFormula& formula, std::int64_t position, std::int64_t column);

namespace detail {

/// Calls visit(index) for every element of the shape, in row order.
template <class Visit>
void for_each_index(const Shape& shape, const Visit& visit) {
  std::vector<std::int64_t> index(shape.size(), 0);
  for (std::int64_t left = element_count(shape); left > 0; --left) {
    visit(std::span<const std::int64_t>(index));
    for (std::size_t d = shape.size(); d-- > 0 && ++index[d] == shape[d];) index[d] = 0;
  }
}

/// The same for a table of waves, each of whose values is computed once: visit(value).
template <class Visit>
void for_each_wave(const WaveFormula& formula, const Shape& shape, const Visit& visit) {
  const auto dim = shape.begin() + formula.position_dim;
  const std::int64_t repeats = element_count(Shape(shape.begin(), dim));
  const std::int64_t columns = element_count(Shape(dim + 1, shape.end()));
  for (std::int64_t repeat = 0; repeat < repeats; ++repeat) {
    for (std::int64_t position = 0; position < *dim; ++position)
      for (std::int64_t c = 0; c < columns; ++c) visit(value_at(formula, position, c));
  }
}

}  // namespace detail

/// Calls visit(value) for every element, a double, in row order. O(elements).
template <class Visit>
void for_each_value(const ConstantFormula& formula, const Shape& shape, const Visit& visit) {
  if (const auto* waves = std::get_if<WaveFormula>(&formula))
    return detail::for_each_wave(*waves, shape, visit);
  const auto each = [&](const auto& one) {
    detail::for_each_index(shape, [&](std::span<const std::int64_t> index) { visit(value_at(one, index)); });
  };
  if (const auto* linear = std::get_if<LinearFormula>(&formula)) return each(*linear);
  each(std::get<BandFormula>(formula));
}

}  // namespace pp

namespace pp::detail {

/// A number, or such an object; none: it is neither.
std::optional<double> number_of(const Json& json);
Json number_json(double value);

}  // namespace pp::detail

#include "libprofile/core/model/constant_formula.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "libprofile/core/model/model_names.h"

namespace pp {

namespace {

enum class FormulaKind { linear, band, waves };

}  // namespace

template <>
struct EnumNames<FormulaKind> {
  static constexpr std::array table{std::pair{FormulaKind::linear, "linear"sv},
                                    std::pair{FormulaKind::band, "band"sv},
                                    std::pair{FormulaKind::waves, "waves"sv}};
};

namespace {

using detail::number_json;

constexpr double kMostWhole = 9007199254740992.0;  // 2^53: doubles are exact up to it
constexpr std::size_t kMostFrequencies = 65536;

double read_number(ObjectReader& reader, std::string_view key) {
  const std::optional<double> number = detail::number_of(reader.raw(key));
  if (!number) reader.fail(key, "must be a number or {\"number\": \"-inf\"}, \"inf\" or \"nan\"");
  return *number;
}

double read_number(ObjectReader& reader, std::string_view key, double otherwise) {
  return reader.has(key) ? read_number(reader, key) : otherwise;
}

/// A value that the tensor's type holds.
double read_value(ObjectReader& reader, std::string_view key, double otherwise, DType dtype) {
  const double value = read_number(reader, key, otherwise);
  const double least = dtype == DType::int64 ? -kMostWhole : 0;
  const double most = dtype == DType::boolean ? 1 : dtype == DType::uint8 ? 255 : kMostWhole;
  const bool whole = value == std::floor(value) && value >= least && value <= most;
  if (!is_floating(dtype) && !whole)
    reader.fail(key, "must be an integer that the type " + std::string(name_of(dtype)) + " holds");
  return value;
}

LinearFormula read_linear(ObjectReader& reader, const Shape& shape) {
  LinearFormula linear;
  constexpr NumberRange kRange{-kMostWhole, kMostWhole};
  if (reader.has("offset")) linear.offset = reader.number("offset", kRange);
  linear.steps = reader.numbers("steps", kRange);
  if (linear.steps.size() != shape.size()) {
    reader.fail("steps", "has " + std::to_string(linear.steps.size()) + " entries, the shape " +
                             to_text(shape) + " needs " + std::to_string(shape.size()));
  }
  return linear;
}

/// Least and largest value, at two corners.
std::pair<double, double> range_of(const LinearFormula& linear, const Shape& shape) {
  double least = linear.offset, most = linear.offset;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const double last = linear.steps[d] * static_cast<double>(shape[d] - 1);
    (last < 0 ? least : most) += last;
  }
  return {least, most};
}

void check_integers(ObjectReader& reader, const LinearFormula& linear, const TensorType& type) {
  if (is_floating(type.dtype)) return;
  const auto whole = [](double value) { return value == std::floor(value); };
  const auto [least, most] = range_of(linear, type.shape);
  const double floor = type.dtype == DType::int64 ? -kMostWhole : 0;
  const double ceiling = type.dtype == DType::boolean ? 1 : type.dtype == DType::uint8 ? 255 : kMostWhole;
  if (!whole(linear.offset) || !std::ranges::all_of(linear.steps, whole) || least < floor || most > ceiling)
    reader.fail("steps", "gives values that the type " + std::string(name_of(type.dtype)) + " does not hold");
}

WaveFormula read_waves(ObjectReader& reader, const TensorType& type) {
  WaveFormula waves;
  if (!is_floating(type.dtype))
    reader.fail("kind", "waves have a floating type, not " + std::string(name_of(type.dtype)));
  if (type.shape.empty()) reader.fail("kind", "waves have a dimension of positions, and the shape has none");
  const auto dimensions = static_cast<std::int64_t>(type.shape.size());
  waves.position_dim = static_cast<int>(reader.integer("position_dim", {.max = dimensions - 1}));
  waves.function = reader.enumerator<WaveFunction>("function");
  waves.columns = reader.enumerator<WaveColumns>("columns");
  waves.frequencies = reader.numbers("frequencies", {-kMostNumber, kMostNumber});
  if (reader.has("factor")) waves.factor = reader.number("factor", {-kMostNumber, kMostNumber});
  const bool both = waves.function == WaveFunction::cos_sin || waves.function == WaveFunction::sin_cos;
  if (both && waves.columns == WaveColumns::single)
    reader.fail("columns", "two functions by turns stand in halves or pairs");
  const std::int64_t columns =
      element_count(Shape(type.shape.begin() + waves.position_dim + 1, type.shape.end()));
  const auto frequencies = static_cast<std::int64_t>(waves.frequencies.size());
  const std::int64_t given = frequencies * (waves.columns == WaveColumns::single ? 1 : 2);
  if (waves.frequencies.size() > kMostFrequencies || given != columns) {
    reader.fail("frequencies", "has " + std::to_string(frequencies) + " entries, for " + std::to_string(given) +
                                   " columns; the shape " + to_text(type.shape) + " has " +
                                   std::to_string(columns) + " behind dimension " +
                                   std::to_string(waves.position_dim));
  }
  return waves;
}

struct ToJson {
  Json operator()(const LinearFormula& formula) const { return with_distance("linear", formula); }
  Json operator()(const BandFormula& formula) const {
    Json json = with_distance("band", formula.distance);
    if (std::isfinite(formula.low)) json["low"] = formula.low;
    if (std::isfinite(formula.high)) json["high"] = formula.high;
    json["inside"] = number_json(formula.inside);
    json["outside"] = number_json(formula.outside);
    return json;
  }
  Json operator()(const WaveFormula& formula) const {
    return {{"kind", "waves"},
            {"position_dim", formula.position_dim},
            {"function", name_of(formula.function)},
            {"columns", name_of(formula.columns)},
            {"frequencies", formula.frequencies},
            {"factor", formula.factor}};
  }
  static Json with_distance(const char* kind, const LinearFormula& linear) {
    return {{"kind", kind}, {"offset", linear.offset}, {"steps", linear.steps}};
  }
};

}  // namespace

ConstantFormula read_constant_formula(ObjectReader& reader, const TensorType& type) {
  if (element_count(type.shape) > kMostFormulaElements)
    reader.fail("kind", "the shape " + to_text(type.shape) + " has more than 2^32 elements; use smaller sizes");
  switch (reader.enumerator<FormulaKind>("kind")) {
    case FormulaKind::linear: {
      LinearFormula linear = read_linear(reader, type.shape);
      check_integers(reader, linear, type);
      return linear;
    }
    case FormulaKind::band: {
      BandFormula band{.distance = read_linear(reader, type.shape)};
      band.low = read_number(reader, "low", band.low);
      band.high = read_number(reader, "high", band.high);
      band.inside = read_value(reader, "inside", 1, type.dtype);
      band.outside = read_value(reader, "outside", 0, type.dtype);
      return band;
    }
    case FormulaKind::waves: break;
  }
  return read_waves(reader, type);
}

Json to_json(const ConstantFormula& formula) { return std::visit(ToJson{}, formula); }

double value_at(const LinearFormula& formula, std::span<const std::int64_t> index) {
  double value = formula.offset;
  for (std::size_t d = 0; d < index.size(); ++d) value += formula.steps[d] * static_cast<double>(index[d]);
  return value;
}

double value_at(const BandFormula& formula, std::span<const std::int64_t> index) {
  const double distance = value_at(formula.distance, index);
  return distance >= formula.low && distance <= formula.high ? formula.inside : formula.outside;
}

double value_at(const WaveFormula& formula, std::int64_t position, std::int64_t column) {
  const auto count = static_cast<std::int64_t>(formula.frequencies.size());
  const bool second = formula.columns == WaveColumns::halves  ? column >= count
                      : formula.columns == WaveColumns::pairs ? column % 2 == 1
                                                              : false;
  const std::int64_t which = formula.columns == WaveColumns::halves  ? column % count
                             : formula.columns == WaveColumns::pairs ? column / 2
                                                                     : column;
  const float angle =
      static_cast<float>(position) * static_cast<float>(formula.frequencies[static_cast<std::size_t>(which)]);
  const bool sine = formula.function == WaveFunction::sin ||
                    (formula.function == WaveFunction::sin_cos && !second) ||
                    (formula.function == WaveFunction::cos_sin && second);
  return formula.factor * (sine ? std::sin(double{angle}) : std::cos(double{angle}));
}

}  // namespace pp

// The keys of constants by formula, and their values.
#include "libprofile/core/model/constant_formula.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "libprofile/core/json_fields.h"
#include "libprofile/core/model/model_names.h"
#include "libprofile/core/schema/document_schema.h"

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

/// Also one that JSON has no number for.
constexpr ValueType kFormulaValue{
    .read =
        [](const Field&, const Json& json, const std::string& pointer, void* to) {
          const std::optional<double> number = detail::number_of(json);
          if (!number)
            detail::fail_at(pointer, "must be a number or {\"number\": \"-inf\"}, \"inf\" or \"nan\"");
          *static_cast<double*>(to) = *number;
        },
    .write = [](const Field&, const void* from) { return number_json(*static_cast<const double*>(from)); },
    .schema = [](const Field&) -> Json {
      return {{"$ref", "#/definitions/value"}};
    }};

/// Read before the list is chosen.
template <FormulaKind kKind>
constexpr ValueType kKindType{.read = [](const Field&, const Json&, const std::string&, void*) {},
                              .write = [](const Field&, const void*) -> Json { return name_of(kKind); },
                              .schema = [](const Field&) -> Json {
                                return {{"enum", {name_of(kKind)}}};
                              }};
template <class Formula, FormulaKind kKind>
constexpr FieldOf<Formula> kind_key() {
  FieldOf<Formula> made = whole<Formula>("kind", kKindType<kKind>);
  made.required = true;
  return made;
}

/// What the schema leaves open, as the types of constants say more.
template <class T>
constexpr ValueType kOpen{detail::read_value<T>, detail::write_value<T>, [](const Field&) {
                            Field any;
                            any.numbers = kAnyNumber;
                            return detail::value_schema<T>(any);
                          }};
template <class Made>
constexpr Made within(Made made, double most, const ValueType& type) {
  made.numbers = {-most, most};
  made.type = &type;
  return made;
}

constexpr const ValueType &kOpenNumber = kOpen<double>, &kOpenNumbers = kOpen<std::vector<double>>;

constexpr Object kLinearKeys{
    "linear_formula",
    kind_key<LinearFormula, FormulaKind::linear>(),
    within(defaulted<&LinearFormula::offset>("offset"), kMostWhole, kOpenNumber),
    within(key<&LinearFormula::steps>("steps"), kMostWhole, kOpenNumbers),
};
constexpr Object kBandKeys{
    "band_formula",
    kind_key<BandFormula, FormulaKind::band>(),
    within(defaulted<&BandFormula::distance, &LinearFormula::offset>("offset"), kMostWhole, kOpenNumber),
    within(key<&BandFormula::distance, &LinearFormula::steps>("steps"), kMostWhole, kOpenNumbers),
    optional<&BandFormula::low>("low", kFormulaValue),
    optional<&BandFormula::high>("high", kFormulaValue),
    defaulted<&BandFormula::inside>("inside", kFormulaValue),
    defaulted<&BandFormula::outside>("outside", kFormulaValue),
};
constexpr Object kWaveKeys{
    "wave_formula",
    kind_key<WaveFormula, FormulaKind::waves>(),
    key<&WaveFormula::position_dim>("position_dim"),
    key<&WaveFormula::function>("function"),
    key<&WaveFormula::columns>("columns"),
    within(key<&WaveFormula::frequencies>("frequencies"), kMostNumber, kOpenNumbers),
    within(defaulted<&WaveFormula::factor>("factor"), kMostNumber, kOpenNumber),
};

/// That the tensor's type holds it.
void check_value(ObjectReader& reader, std::string_view key, double value, DType dtype) {
  const double least = dtype == DType::int64 ? -kMostWhole : 0;
  const double most = dtype == DType::boolean ? 1 : dtype == DType::uint8 ? 255 : kMostWhole;
  const bool whole = value == std::floor(value) && value >= least && value <= most;
  if (!is_floating(dtype) && !whole)
    reader.fail(key, "must be an integer that the type " + std::string(name_of(dtype)) + " holds");
}

void check_steps(ObjectReader& reader, const LinearFormula& linear, const Shape& shape) {
  if (linear.steps.size() == shape.size()) return;
  reader.fail("steps", "has " + std::to_string(linear.steps.size()) + " entries, the shape " + to_text(shape) +
                           " needs " + std::to_string(shape.size()));
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

template <class Formula, std::size_t N>
Formula read_formula(const Object<Formula, N>& keys, ObjectReader& reader) {
  Formula formula;
  read_keys(keys_of(keys), reader, &formula);
  return formula;
}

WaveFormula read_waves(ObjectReader& reader, const TensorType& type) {
  if (!is_floating(type.dtype))
    reader.fail("kind", "waves have a floating type, not " + std::string(name_of(type.dtype)));
  if (type.shape.empty()) reader.fail("kind", "waves have a dimension of positions, and the shape has none");
  reader.integer("position_dim", {.max = static_cast<std::int64_t>(type.shape.size()) - 1});
  WaveFormula waves = read_formula(kWaveKeys, reader);
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
  Json operator()(const LinearFormula& formula) const { return pp::to_json(kLinearKeys, formula); }
  Json operator()(const BandFormula& formula) const { return pp::to_json(kBandKeys, formula); }
  Json operator()(const WaveFormula& formula) const { return pp::to_json(kWaveKeys, formula); }
};

}  // namespace

ConstantFormula read_constant_formula(ObjectReader& reader, const TensorType& type) {
  if (element_count(type.shape) > kMostFormulaElements)
    reader.fail("kind", "the shape " + to_text(type.shape) + " has more than 2^32 elements; use smaller sizes");
  switch (reader.enumerator<FormulaKind>("kind")) {
    case FormulaKind::linear: {
      LinearFormula linear = read_formula(kLinearKeys, reader);
      check_steps(reader, linear, type.shape);
      check_integers(reader, linear, type);
      return linear;
    }
    case FormulaKind::band: {
      BandFormula band = read_formula(kBandKeys, reader);
      check_steps(reader, band.distance, type.shape);
      check_value(reader, "inside", band.inside, type.dtype);
      check_value(reader, "outside", band.outside, type.dtype);
      return band;
    }
    case FormulaKind::waves: break;
  }
  return read_waves(reader, type);
}

Json to_json(const ConstantFormula& formula) { return std::visit(ToJson{}, formula); }

std::array<Keys, 3> formula_keys() { return {keys_of(kLinearKeys), keys_of(kBandKeys), keys_of(kWaveKeys)}; }

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

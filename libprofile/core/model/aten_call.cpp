#include "libprofile/core/model/aten_call.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "libprofile/core/model/constant_formula.h"

namespace pp {

double value_of(SpecialNumber number) {
  switch (number) {
    case SpecialNumber::negative_infinity: return -std::numeric_limits<double>::infinity();
    case SpecialNumber::infinity: return std::numeric_limits<double>::infinity();
    case SpecialNumber::nan: return std::numeric_limits<double>::quiet_NaN();
  }
  return 0;
}

namespace detail {

std::optional<double> number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (!json.is_object() || json.size() != 1 || !json.contains("number") || !json["number"].is_string())
    return std::nullopt;
  const auto special = find_enum<SpecialNumber>(json["number"].get<std::string>());
  return special ? std::optional(value_of(*special)) : std::nullopt;
}

Json number_json(double value) {
  if (std::isfinite(value)) return value;
  const SpecialNumber special = std::isnan(value) ? SpecialNumber::nan
                                : value > 0       ? SpecialNumber::infinity
                                                  : SpecialNumber::negative_infinity;
  return {{"number", name_of(special)}};
}

}  // namespace detail

std::vector<double> values_of(const AtenConstant& constant) {
  std::vector<double> values;
  const auto take = [&](double value) { values.push_back(value); };
  if (const auto* formula = std::get_if<ConstantFormula>(&constant.values)) {
    for_each_value(*formula, constant.type.shape, take);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&constant.values)) {
    values = *numbers;
  } else {
    const auto& integers = std::get<std::vector<std::int64_t>>(constant.values);
    values.assign(integers.begin(), integers.end());
  }
  return values;
}

bool AtenConstant::operator==(const AtenConstant& other) const {
  if (name != other.name || type != other.type || values.index() != other.values.index()) return false;
  const auto* mine = std::get_if<std::vector<double>>(&values);
  if (mine == nullptr) return values == other.values;
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  const auto& others = std::get<std::vector<double>>(other.values);
  return std::equal(mine->begin(), mine->end(), others.begin(), others.end(), same);
}

}  // namespace pp

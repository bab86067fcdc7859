#include "libprofile/core/model/aten_call.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pp {

double value_of(SpecialNumber number) {
  switch (number) {
    case SpecialNumber::negative_infinity: return -std::numeric_limits<double>::infinity();
    case SpecialNumber::infinity: return std::numeric_limits<double>::infinity();
    case SpecialNumber::nan: return std::numeric_limits<double>::quiet_NaN();
  }
  return 0;
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

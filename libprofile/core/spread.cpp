#include "libprofile/core/spread.h"

#include <cmath>

namespace pp {

Spread operator+(const Spread& a, const Spread& b) {
  Spread sum{Seconds(std::hypot(a.below.count(), b.below.count())),
             Seconds(std::hypot(a.above.count(), b.above.count())),
             {}};
  sum.shift = a.mean() + b.mean() - sum.skew();
  return sum;
}

}  // namespace pp

#include "libplan/draw/time_axis.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace pp::plan {
namespace {

/// Ticks that a length of a whole number of steps should not lose to rounding.
constexpr double kSlack = 1e-9;

TimeAxis unit_for(Seconds length) {
  if (length.count() < 1e-6) return {"ns", 1e-9};
  if (length.count() < 1e-3) return {"us", 1e-6};
  if (length.count() < 10) return {"ms", 1e-3};
  return {"s", 1};
}

}  // namespace

std::string TimeAxis::label(int tick) const {
  std::array<char, 64> text{};
  const auto [end, error] =
      std::to_chars(text.data(), text.data() + text.size(), time(tick).count() / unit_seconds,
                    std::chars_format::fixed, decimals);
  return error == std::errc{} ? std::string(text.data(), end) : "";
}

TimeAxis time_axis(Seconds length, int most) {
  TimeAxis axis = unit_for(length);
  const double units = length.count() / axis.unit_seconds;
  if (units <= 0) return axis;
  const auto ticks_after_first = [&](double step) { return static_cast<int>(units / step * (1 + kSlack)); };
  const int most_after_first = std::max(most - 1, 2);  // some 1-2-5 step always fits twice at most, and once
  double power = std::pow(10, std::floor(std::log10(units / (most_after_first + 1))));
  double step = 0;
  for (; step == 0; power *= 10) {
    for (const double factor : {5.0, 2.0, 1.0}) {
      if (ticks_after_first(factor * power) <= most_after_first) step = factor * power;
    }
  }
  axis.step = Seconds(step * axis.unit_seconds);
  axis.last = ticks_after_first(step);
  axis.decimals = std::max(0, -static_cast<int>(std::floor(std::log10(step) + kSlack)));
  return axis;
}

}  // namespace pp::plan

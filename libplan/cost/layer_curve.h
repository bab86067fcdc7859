// What one layer costs at one micro-batch size: the profile's points, joined by straight lines. Never a time
// divided by samples: times are not linear in the size.
#pragma once

#include <algorithm>
#include <cstdint>

#include "libprofile/core/profile.h"
#include "libprofile/core/units.h"

namespace pp::plan {

/// What may be assumed outside the measured sizes.
struct CurveOptions {
  bool extrapolate = false;   ///< continue the nearest segment, clamped at 0
  bool linear_batch = false;  ///< scale a single point
};

/// Seconds of the passes of one micro-batch.
struct PassTimes {
  double forward = 0, backward = 0, input_gradient = 0, weight_gradient = 0;
  bool operator==(const PassTimes&) const = default;
  PassTimes& operator+=(const PassTimes& other) {
    forward += other.forward, backward += other.backward;
    input_gradient += other.input_gradient, weight_gradient += other.weight_gradient;
    return *this;
  }
  PassTimes& operator-=(const PassTimes& other) { return *this += -1 * other; }
  friend PassTimes operator+(PassTimes a, const PassTimes& b) { return a += b; }
  friend PassTimes operator-(const PassTimes& a, const PassTimes& b) { return a + -1 * b; }
  friend PassTimes operator*(double factor, const PassTimes& times) {
    return {factor * times.forward, factor * times.backward, factor * times.input_gradient,
            factor * times.weight_gradient};
  }
};

/// Seconds and bytes of one micro-batch. Doubles, because the searches add and compare them in prefix sums.
struct LayerPrice {
  double forward = 0;
  double backward = 0;
  double input_gradient = 0;  ///< 0 with weight_gradient 0: not measured
  double weight_gradient = 0;
  /// The times above are of a device that holds a part of the model, as far as the profile tells: how much
  /// longer it takes on one that holds all of it (below 0 where noise or a fuller cache has it so), and how
  /// much more, at least 0, while the others do so, too.
  PassTimes crowded = {}, beside = {};
  PassTimes first = {};  ///< in the first micro-batch after an update; may be below 0
  std::int64_t output = 0;
  std::int64_t saved = 0;
  std::int64_t saved_input = 0;
  std::int64_t workspace = 0;
  std::optional<std::int64_t> waiting = std::nullopt;  ///< nothing: not measured
  bool operator==(const LayerPrice&) const = default;
};

inline PassTimes times_of(const LayerPrice& price) {
  return {price.forward, price.backward, price.input_gradient, price.weight_gradient};
}

/// The share of LayerPrice::beside that devices pay whose node holds `copies` of the model: nothing up to one,
/// all of it with one on each of `devices`, and along a line in between.
inline double crowding_beside(double copies, int devices) {
  return devices < 2 ? 0 : std::clamp((copies - 1) / (devices - 1), 0.0, 1.0);
}

/// The share of LayerPrice::crowded that a device pays with `held` of the model's `all` bytes of parameters: as
/// if each of `devices` held as much. So nothing up to an equal share, and all of it with the whole model. Does
/// not fall in `held`.
inline double crowding(double held, double all, int devices) {
  return devices < 2 || all <= 0 ? 1 : crowding_beside(devices * held / all, devices);
}

/// The same without what falls as a device holds more: no crowding makes it dearer than its least, so that no
/// stage is cheaper than a part of it. For searches and bounds.
LayerPrice never_falling(LayerPrice price);

/// How its times vary, by the recorded percentiles; these lie on straight lines as the medians do.
struct LayerSpread {
  Spread forward, backward, input_gradient, weight_gradient;
  bool operator==(const LayerSpread&) const = default;
};

/// Throws pp::Error (usage) when `size` is outside the usable points: `layer conv1: micro-batch size 32 is
/// outside the profiled 1..16; profile that size, choose another or allow --extrapolate`. Points that ran out
/// of memory do not count.
LayerPrice price_layer(const LayerProfile& layer, std::int64_t size, const CurveOptions& options);
/// The same of its spread; zero where a time has no samples.
LayerSpread spread_layer(const LayerProfile& layer, std::int64_t size, const CurveOptions& options);
/// Of one recorded time; zero without samples.
Spread spread_of(const TimeStat& time);

}  // namespace pp::plan

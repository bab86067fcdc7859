// Memory over time: what every worker holds, by part, at the times of its simulated operations.
#pragma once

#include <span>
#include <vector>

#include "libplan/simulate/memory_walk.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// From `time` on until the next step's time. Two steps at one time: the first held for an instant only, inside
/// an operation without length or between two operations that touch.
struct MemoryStep {
  Seconds time{};
  MemoryParts held;
  bool operator==(const MemoryStep&) const = default;
};

/// By time; the first step is at 0.
using MemoryCurve = std::vector<MemoryStep>;

/// One curve per worker, whose largest values are result.memory. `result` is simulate(input). O(operations).
/// Throws pp::Error (internal) when it is the result of another input.
std::vector<MemoryCurve> memory_curves(const SimulationInput& input, const SimulationResult& result);

/// The largest total of all curves.
Bytes highest(std::span<const MemoryCurve> curves);

/// `columns` equal parts of [0, length]: what is held at the moment of the largest total in each, so that no
/// peak is lost, however short. O(steps + columns).
std::vector<MemoryParts> sample(const MemoryCurve& curve, Seconds length, int columns);

}  // namespace pp::plan

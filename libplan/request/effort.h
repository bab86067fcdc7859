// How long searches take by layers and devices, in the few steps that decide what is searched.
#pragma once

#include <cstdint>

namespace pp::plan {

/// Whether searches, whose time grows with the layers and the square of the devices, are short enough to be
/// repeated on every smaller machine.
constexpr bool is_small(int layers, int devices) { return std::int64_t{layers} * devices * devices <= 16'384; }

/// Whether they would take too long over stages with any replicas: pipelines of equal ones are searched.
constexpr bool is_large(int layers, int devices) {
  return std::int64_t{layers} * devices * devices > 16'000'000;
}

/// On machines that are not small, searches and simulations that take long are for what comes this near to the
/// best so far.
constexpr double kNear = 1.05;

/// Of plans whose schedule places the stages: operations that are simulated in all where a machine is_large().
constexpr std::int64_t kPlacedOperationsLarge = 1'000'000;

/// Under a memory limit each search may take one with the exact memory: layers times devices of all that are
/// repeated.
constexpr int kLimitedWork = 4000;

}  // namespace pp::plan

// Layers of the same code that a profile found unequal: the machine was busy while some of them were measured.
#pragma once

#include <optional>
#include <string>

#include "libprofile/core/profile.h"

namespace pp::plan {

/// The fastest and the slowest of equal layers, forward and backward together.
struct UnequalLayers {
  int layers = 0;
  std::string fastest, slowest;
  Seconds least{}, most{};
  bool operator==(const UnequalLayers&) const = default;
};

/// Layers are equal that have the same operation, attributes, parameters, FLOPs and bytes. Of all groups of
/// such the one whose times, at the largest profiled micro-batch size, are off their median by most in sum;
/// nothing where the slowest takes at most 1.5 times as long as the fastest or that sum is at most 5 % of all
/// layers' times, and for a profile whose times were not measured here. O(layers * groups).
std::optional<UnequalLayers> unequal_layers(const Profile& profile);

}  // namespace pp::plan

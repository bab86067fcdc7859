// The same cores as devices of several sizes, or the same GPUs in groups of several degrees, each with
// its profile: on which of these machines the best plan is. Finds layers of the same code whose measured times
// differ, because the machine was busy with something else.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>

#include "libplan/plan/plan.h"
#include "libplan/search/planner.h"
#include "libprofile/core/profile.h"

namespace pp::plan {

/// The best plans for one of the machines, or why it has none.
struct MachinePlans {
  int devices = 1;
  int cores_per_device = 1;  ///< 0: GPUs
  std::string profile_hash;
  std::variant<RankedPlans, Infeasible> found;
  int tensor_degree = 1, context_degree = 1, expert_degree = 1, shard_degree = 1;
};

/// The plans of the machine whose best step is the least; of equals the first. Of several it says so in
/// Plan::machines, and the fastest `top` alternatives of all are listed. Infeasible, as the first, when no
/// machine has a plan.
std::variant<RankedPlans, Infeasible> choose_machine(std::span<const MachinePlans> machines, int top);

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

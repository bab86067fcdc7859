// Random planning problems that are small enough to be enumerated: what the cross-checks are run on.
#pragma once

#include <cstdint>

#include "libplan/request/request.h"
#include "tests/libplan/search/instances.h"

namespace pp::plan::test {

inline constexpr std::int64_t kMb = 1'000'000;

struct DrawnProblem {
  Profile profile;
  Cluster cluster;
  PlanRequest request;
};

/// Whole milliseconds and megabytes at micro-batch sizes 1 to 3; some with a loss, updates, lines that miss the
/// origin, bytes that wait between the halves of the backward. `graph`: edges at random, else a chain.
Profile draw_profile(Random& random, int layers, bool graph);

/// At most `most_layers` layers on up to three devices, some measured among full neighbours, under a schedule
/// that leaves the placement to the planner; micro-batches may be unequal, memory limited.
DrawnProblem draw_problem(Random& random, int most_layers);

}  // namespace pp::plan::test

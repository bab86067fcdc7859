// The mean of a step whose operations vary. It is longer than the step of their medians: who waits for several
// waits for the slowest of them.
#pragma once

#include <optional>

#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// What the period (chained_period() of synchronous programs, else steady_period()) is on average beyond that
/// of the medians, by up to 2048 draws of all operations; the same input gives the same answer. Of one worker
/// alone it is exact: what the means of its operations are beyond their medians. Nothing where no stage has a
/// spread, or the programs have more than 100,000 operations in three steps. Costs at most 400,000 simulated
/// operations, or four draws.
std::optional<Seconds> expected_excess(const SimulationInput& input);

}  // namespace pp::plan

// Memory of every worker over its program (planning.md 2.12). Internal to the simulator.
#pragma once

#include <vector>

#include "libplan/schedule/program_index.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// Walks each list once: F takes the saved bytes and the input when it starts (the input alone where R follows,
/// which takes the saved bytes then), B or W returns them when it ends, the workspace lives inside an
/// operation. Operations of one worker never overlap, so the list fixes the sequence and no times are needed.
///
/// Versions: a synchronous worker keeps StageCosts::versions. An asynchronous one makes a new version at each
/// U; its micro-batches in flight hold the version they ran forward on, and the newest is always there; at
/// least StageCosts::versions. O(operations).
std::vector<MemoryPeak> walk_memory(const ProgramIndex& index, const SimulationInput& input);

}  // namespace pp::plan

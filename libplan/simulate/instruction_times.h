// What the instructions of a step take, waiting included: to be compared with what a run measured of each.
#pragma once

#include <vector>

#include "libplan/schedule/instructions.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// Those of one kind, worker and stage in a step together. Until an operation begins its worker waits in an
/// instruction (OpParts::waits), so those of a worker add up to its step.
struct InstructionTime {
  WorkerId worker{};
  StageId stage{};
  InstructionKind kind{};
  Seconds time{};
  bool operator==(const InstructionTime&) const = default;
};

/// Times in a step in steady state: the third of a chain, or of streams, which hold `updates` mini-batches, the
/// mean of the middle third. By worker, stage and kind. Run options are not known here: `judge` and `feed` are
/// missing, and `push` is priced as the update. As much work as three simulations.
std::vector<InstructionTime> instruction_times(const SimulationInput& input, int updates);

}  // namespace pp::plan

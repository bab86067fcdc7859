// What every walk over a simulation begins with: the input is checked, its programs are indexed.
#pragma once

#include "libplan/schedule/program_index.h"
#include "libplan/simulate/simulate.h"

namespace pp::plan {

/// Throws pp::Error: internal when a vector of `input` does not fit its programs, data for bytes that cannot be
/// added up and for what index_programs() refuses.
ProgramIndex index_simulation(const SimulationInput& input);

}  // namespace pp::plan

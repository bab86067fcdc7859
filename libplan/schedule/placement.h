// Who runs a micro-batch of a stage with several workers, where no micro-batch may be split: what check_plan()
// asks of every plan.
#pragma once

#include "libplan/schedule/program_set.h"

namespace pp::plan {

/// Every micro-batch of a stage is run by one of the stage's workers. Workers of a stage without flush take
/// turns besides, each in ascending order: they update together after every round. `set` has passed validate().
/// Throws pp::Error (data) with the worker, the operation and the worker that has the micro-batch already.
void check_owners(const ProgramSet& set);

}  // namespace pp::plan

// Which operations must be listed. Internal to the validator and the index.
#pragma once

#include "libplan/schedule/program_index.h"

namespace pp::plan {

/// No more stages times micro-batches than the programs have forwards: what the index holds a table of. Throws
/// pp::Error (data) that names the first forward that is missing.
void check_table_size(const ProgramSet& set, const ProgramIndex& index);

/// Exactly one F per stage and micro-batch, or one on every worker of the stage; with it, on the same worker,
/// one B or else one I and one W. Other rule sets: validate.h. Throws pp::Error (data) that names what is
/// missing or stray.
void check_micro_batches(const ProgramSet& set, const ProgramIndex& index);

/// Per stage how many workers add to its gradient: all of them, even those without a micro-batch of their own;
/// under swaps those that run backwards.
std::vector<int> partners_of_stages(const ProgramSet& set, const ProgramIndex& index);

/// U and AR as often as the set's kind asks: once per worker and stage, or (asynchronous) once per
/// set.backwards_per_update backwards; AR only where a stage has several workers. Throws pp::Error (data).
void check_updates(const ProgramSet& set, const ProgramIndex& index);

}  // namespace pp::plan

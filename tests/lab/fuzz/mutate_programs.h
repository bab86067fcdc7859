// Mutations of programs: what somebody who edits a plan by hand does to operations. About half of them keep the
// programs valid.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "libplan/schedule/program.h"
#include "libprofile/core/json_reader.h"
#include "tests/lab/fuzz/random.h"

namespace pp::fuzz {

/// One change: an operation moved, dropped, repeated, given to another worker, another kind, stage or
/// micro-batch; B as I and W and back; R put in; two micro-batches or two workers exchanged throughout.
void mutate_programs(Random& random, std::vector<plan::Program>& workers);

/// The same for the programs (or prologues, or bodies) of a plan document, those that parse.
void mutate_plan_programs(Random& random, Json& plan);

}  // namespace pp::fuzz

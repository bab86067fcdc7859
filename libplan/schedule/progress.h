// Whether a set of programs can run to its end, and the report when it cannot.
#pragma once

#include <span>
#include <string>

#include "libplan/schedule/program_index.h"

namespace pp::plan {

/// Executes the head of any worker whose dependencies are met until all lists are empty; the order of trying
/// does not matter. An AR waits for its whole group. O(operations). Throws pp::Error (data) with
/// deadlock_report().
void check_progress(const ProgramIndex& index);

/// `plan: deadlock after 12 of 64 operations`, then one line per worker. `heads`: per worker the id of the
/// operation it cannot start, or the end of its list.
std::string deadlock_report(const ProgramIndex& index, std::span<const int> heads);

}  // namespace pp::plan

// The schedules as a table in Markdown: what each is, needs, holds and loses. libplan/schedule/README.md has
// it.
#pragma once

#include <string>

namespace pp::plan_tool {

/// A line per schedule. Its figures are of four workers and eight micro-batches whose F, I and W take the same,
/// simulated without messages; `-`: the schedule has no programs without costs or a file.
std::string schedule_reference();

}  // namespace pp::plan_tool

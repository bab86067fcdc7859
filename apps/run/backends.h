// What this build of pp-run computes and talks with.
#pragma once

#include <string>

namespace pp::run_tool {

/// A line for each: `MPI: Open MPI v4.1.4`, or `MPI: not in this build`.
std::string backends_text();

}  // namespace pp::run_tool

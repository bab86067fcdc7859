// The table of a plan's stages. Large machines say few things: what is alike stands in one row, devices as
// ranges.
#pragma once

#include <string>
#include <string_view>

#include "libplan/plan/plan.h"

namespace pp::plan_tool {

/// `12 x 2, 1, 1` of `2-2-...-2-1-1`: four equal ones in a row, or more, are counted. Without such a row the
/// list as it is.
std::string counted_runs(std::string_view list, char separator);

/// Lines that end with the bottleneck's; stages of equal size, time and memory that follow one another share a
/// row where they are three or more. Below it what brackets mean, and the devices without work.
std::string stage_table(const plan::Plan& plan, bool color);

}  // namespace pp::plan_tool

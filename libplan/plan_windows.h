// How many micro-batches the workers of a plan hold between forward and backward: its windows.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "libplan/plan.h"

namespace pp::plan {

/// Of one worker: the most forwards of the stage at one time whose backward has not ended.
int window_of(const WorkerProgram& program, StageId stage);

/// The same without those whose input gradient has ended: they no longer hold all that their forward saved.
int whole_window_of(const WorkerProgram& program, StageId stage);

/// window_of() in micro-batches of the largest size; `bytes` has the share of each, empty: all are equal. Of a
/// stream their number.
double held_of(const WorkerProgram& program, StageId stage, std::span<const double> bytes);

/// Per stage that of its busiest worker, by the programs.
std::vector<int> windows_of(const Plan& plan);

/// What the same stages hold under the windows of `win`; empty for schedules that read no windows, and for
/// streams.
std::vector<int> classic_windows(const Plan& plan);

/// Per stage the classic window where the plan's is wider; empty: none is.
std::vector<std::optional<int>> widened_from(const Plan& plan);

}  // namespace pp::plan

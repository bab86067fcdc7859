// How many operations a schedule has, before it is made.
#pragma once

#include <cstdint>

#include "libplan/schedule/schedule.h"

namespace pp::plan {

/// Whether its stages work in the steps of one clock, on an endless stream of frames.
bool is_clocked(const ScheduleRequest& request);

/// Steps in which a clocked schedule does all that it does in every third of them: the first backward of the
/// first stage comes after twice the stages.
std::int64_t clocked_steps(const ScheduleRequest& request);

/// Of all workers over `length` micro-batches; what ends a synchronous step counts twice per stage and worker.
double operation_count(const ScheduleRequest& request, double length);

/// Throws pp::Error (usage) for more than kOperationLimit.
void check_size(const ScheduleRequest& request, double length);

}  // namespace pp::plan

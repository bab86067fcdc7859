// The generators behind schedule_table(), one file each, and what they share. Everybody else calls
// require_schedule(name).generate.
#pragma once

#include <vector>

#include "libplan/schedule/schedule.h"

namespace pp::plan {

std::vector<WorkerProgram> generate_gpipe(const ScheduleRequest& request);
std::vector<WorkerProgram> generate_one_forward_one_backward(const ScheduleRequest& request);
std::vector<WorkerProgram> generate_pipedream(const ScheduleRequest& request);

/// Throws pp::Error (usage) unless there is at least one stage, one replica of each and one micro-batch.
void check_request(const ScheduleRequest& request);

/// The window of each stage by the request's rule. Throws pp::Error (usage) when an explicit list does not have
/// one positive number per stage.
std::vector<int> request_windows(const ScheduleRequest& request);

/// The end of a step on a worker of one stage: AR when there is more than one replica, then U.
void append_update(Program& program, StageId stage, int replicas);

}  // namespace pp::plan

// What training and inference refuse alike, before work starts. All throw pp::Error.
#pragma once

#include <vector>

#include "libplan/plan.h"
#include "librun/execution.h"

namespace pp::run {

/// That the options have a meaning by themselves.
void check_execution(const ExecutionOptions& options);

/// That every layer can be run.
void check_runnable(const ResolvedModel& model);

void check_autocast(const plan::Plan& plan, const ExecutionOptions& options);

/// Per worker; this machine has them.
std::vector<Device> devices_of_workers(const plan::Plan& plan);

}  // namespace pp::run

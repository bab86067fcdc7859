// What training and inference refuse alike, before work starts. All throw pp::Error.
#pragma once

#include <span>
#include <vector>

#include "libplan/plan.h"
#include "librun/execution.h"
#include "librun/transport/placement.h"
#include "librun/worker/core_binding.h"

namespace pp::run {

/// That the options have a meaning by themselves.
void check_execution(const ExecutionOptions& options);

/// That every layer can be run.
void check_runnable(const ResolvedModel& model);

void check_autocast(const plan::Plan& plan, const ExecutionOptions& options);

/// Per worker; this machine has those of the workers that are here. To be asked before check_runnable(), which
/// may compute: LibTorch takes its CUDA half only before.
std::vector<Device> devices_of_workers(const plan::Plan& plan, const Placement& placement);

/// The cores of this machine, shared with the processes beside this one; of workers elsewhere none.
CoreBinding cores_of_workers(std::span<const Device> devices, const Placement& placement);

}  // namespace pp::run

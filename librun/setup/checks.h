// What training and inference refuse alike, before work starts. All throw pp::Error.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/plan.h"
#include "libprofile/device/device_set.h"
#include "librun/options/execution_options.h"
#include "librun/threads/core_binding.h"
#include "librun/transport/placement.h"

namespace pp::run {

/// That the options have a meaning by themselves.
void check_execution(const ExecutionOptions& options);

/// That every layer can be run, as far as can be said without LibTorch.
void check_runnable(const ResolvedModel& model);

/// Whether LibTorch must be asked, too, by model::check_bindable(): the model calls it by name.
bool calls_libtorch(const ModelGraph& model);

void check_autocast(const plan::Plan& plan, const ExecutionOptions& options);
/// That the plan's times and bytes are of another autocast, with the remedy; empty: they are not, or it has
/// none.
std::string other_autocast(const plan::Plan& plan, const ExecutionOptions& options);

/// The options, with what the plan says where they say nothing.
template <class Options>
Options as_planned(Options options, const plan::Plan& plan) {
  if (!options.autocast) options.autocast = plan.training.autocast;
  return options;
}

/// Per worker; this machine has those of the workers that are here. To be asked before LibTorch computes: it
/// takes its CUDA half only before.
std::vector<Device> devices_of_workers(const plan::Plan& plan, const Placement& placement,
                                       const profile::MachineDevices& machine);

/// The cores of this machine, shared with the processes beside this one; of workers elsewhere none.
CoreBinding cores_of_workers(std::span<const Device> devices, const Placement& placement);

}  // namespace pp::run

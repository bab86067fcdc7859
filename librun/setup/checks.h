// What training and inference refuse alike before work starts, what a stream of frames (PARTIME) asks of
// model and data, and which passes --cuda-graphs reaches. All throw pp::Error. Free of Torch.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "libplan/plan/plan.h"
#include "libprofile/device/device_set.h"
#include "librun/data/order.h"
#include "librun/options/run_options.h"
#include "librun/stage/pass_kind.h"
#include "librun/threads/threads.h"
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

/// The first layer with an output whose gradient the plan's stages add up in other groups than one device does,
/// last reader first: then weights differ from one device's in rounding. Stages add those of their own readers
/// before they send the sum. Empty: none.
std::string regrouped_layer(const plan::Plan& plan, const ResolvedModel& model);

/// Throws pp::Error (data).
void check_frames(const plan::Plan& plan, const ResolvedModel& model, const EpochShape& epoch);

/// Throws pp::Error (usage, device) where no pass could be recorded: weights move or have versions, or a worker
/// here has no GPU.
void check_cuda_graphs(const plan::Plan& plan, std::span<const Device> devices, const Placement& placement);

/// What keeps the passes of a stage from being recorded: `layer "drop1" draws random numbers`; empty: nothing.
std::string why_not_recorded(const plan::Plan& plan, const ResolvedModel& model, StageId stage);

/// The kinds of the stage's passes in a worker's program, in the order of their forwards.
std::vector<PassKind> pass_kinds(const plan::Program& program, StageId stage);

}  // namespace pp::run

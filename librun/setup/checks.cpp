#include "librun/setup/checks.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "libprofile/core/error.h"
#include "libprofile/core/ops/op_table.h"
#include "libprofile/device/cores.h"
#include "librun/options/limits.h"

namespace pp::run {

namespace {

void check_devices(const plan::Plan& plan, std::span<const Device> devices, const Placement& placement,
                   const profile::MachineDevices& machine) {
  for (const plan::Worker& worker : plan.workers) {
    if (!placement.here(worker.id)) continue;
    const Device& device = devices[index(worker.id)];
    if (device.kind != DeviceKind::cuda) continue;
    const int cuda = machine.cuda();
    if (device.index < cuda) continue;
    refuse(
        ErrorKind::device,
        "worker " + std::to_string(number(worker.id)) + ": device " + to_text(device) + ": " +
            (cuda == 0 ? std::string(machine.why_no_cuda).append("; plan for CPU devices")
                       : "this machine has cuda:0 to cuda:" + std::to_string(cuda - 1) + "; plan for these"));
  }
}

}  // namespace

void check_execution(const ExecutionOptions& options) {
  if (options.data.empty()) refuse(ErrorKind::usage, "--data: give a folder or file, or synthetic");
  require(std::isfinite(options.synthetic_drift) && options.synthetic_drift >= 0, "synthetic_drift",
          options.synthetic_drift, "0 or more");
  if (options.synthetic_drift > 0 && options.data != "synthetic")
    refuse(ErrorKind::usage,
           "--synthetic-drift: the data are " + options.data + "; leave it out, or use --data synthetic");
  if (options.data == "synthetic")
    require(options.synthetic_samples >= 1, "synthetic_samples", options.synthetic_samples, "at least 1");
  if (options.memory_limit && options.memory_limit->value < 1)
    refuse(ErrorKind::usage, "--memory-limit " + to_text(*options.memory_limit) + ": must be above 0");
  require(options.stall_timeout.count() > 0, "stall_timeout", options.stall_timeout.count(), "above 0");
  require(!options.scale || std::isfinite(*options.scale), "scale", options.scale.value_or(0), "finite");
}

void check_runnable(const ResolvedModel& model) {
  if (!model.graph.verified) {
    refuse(ErrorKind::data, "model \"" + model.graph.name +
                                "\" was imported by --plan-only, without weights, and never compared with its "
                                "module; import it with "
                                "scripts/import-torch without --plan-only, which compares them, and give that "
                                "model.json by --model");
  }
  for (const Layer& layer : model.graph.layers) {
    const OpRow* row = find_op(layer.op);
    if (row == nullptr || row->runnable) continue;
    refuse(ErrorKind::data,
           "layer \"" + layer.name +
               "\" is opaque: the model comes from another planner's profile, it can be planned and "
               "simulated, not run; plan a model with layers");
  }
}

bool calls_libtorch(const ModelGraph& model) {
  const auto calls = [](const Layer& layer) { return layer.call.has_value(); };
  const auto in_any = [&](const auto& layer) { return std::ranges::any_of(layer.nodes, calls); };
  return std::ranges::any_of(model.layers, calls) || std::ranges::any_of(model.layers, in_any) ||
         (model.loss && in_any(*model.loss));
}

void check_autocast(const plan::Plan& plan, const ExecutionOptions& options) {
  if (!options.autocast) return;
  if (plan.training.dtype != DType::float32) {
    refuse(ErrorKind::usage, "--autocast: the plan trains in " + std::string(name_of(plan.training.dtype)) +
                                 "; plan with float32, or leave it out");
  }
}

std::string other_autocast(const plan::Plan& plan, const ExecutionOptions& options) {
  if (options.autocast == plan.training.autocast || plan.predicted.stages.empty()) return "";
  const auto text = [](std::optional<Autocast> autocast) {
    return autocast ? "autocast to " + std::string(name_of(*autocast)) : "no autocast";
  };
  return "the plan's profile was of " + text(plan.training.autocast) + ", this run is of " +
         text(options.autocast) +
         ": the predicted times and bytes are not its own; plan with a profile of the " +
         "same (pp-profile run --autocast)";
}

std::vector<Device> devices_of_workers(const plan::Plan& plan, const Placement& placement,
                                       const profile::MachineDevices& machine) {
  std::vector<Device> devices;
  for (const plan::Worker& worker : plan.workers) {
    devices.push_back(*std::find_if(plan.devices.begin(), plan.devices.end(),
                                    [&](const Device& device) { return device.id == worker.device; }));
  }
  check_devices(plan, devices, placement, machine);
  return devices;
}

CoreBinding cores_of_workers(std::span<const Device> devices, const Placement& placement) {
  std::vector<Device> shared;
  std::vector<std::size_t> of;
  for (std::size_t w = 0; w < devices.size(); ++w) {
    const int rank = placement.of(WorkerId{static_cast<int>(w)});
    if (rank != placement.rank && !placement.beside[static_cast<std::size_t>(rank)]) continue;
    shared.push_back(devices[w]);
    of.push_back(w);
  }
  CoreBinding found = bind_cores(shared, profile::usable_cores());
  CoreBinding all{.cores = std::vector<std::vector<int>>(devices.size()),
                  .warnings = std::move(found.warnings)};
  for (std::size_t i = 0; i < of.size(); ++i) all.cores[of[i]] = std::move(found.cores[i]);
  return all;
}

}  // namespace pp::run

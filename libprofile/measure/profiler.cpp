#include "libprofile/measure/profiler.h"

#include <cmath>

#include "libprofile/core/error.h"
#include "libprofile/device/cuda_devices.h"
#include "libprofile/device/machine.h"
#include "libprofile/device/memory_meter.h"
#include "libprofile/device/process.h"
#include "libprofile/device/reference_kernel.h"
#include "libprofile/measure/findings.h"
#include "libprofile/measure/profile_part.h"
#include "libprofile/measure/profile_run.h"
#include "libprofile/model/errors.h"

namespace pp::profile {
namespace {

void check_sizes(const std::vector<std::int64_t>& sizes) {
  const auto fail = [](const std::string& message) {
    throw Error(ErrorKind::usage, "micro-batch sizes: " + message);
  };
  if (sizes.empty()) fail("none given; name at least one, such as 1,2,4");
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) fail(std::to_string(sizes[i]) + " must be at least 1; leave it out");
    if (i > 0 && sizes[i] <= sizes[i - 1]) {
      fail(std::to_string(sizes[i]) + " after " + std::to_string(sizes[i - 1]) +
           " must be larger; name each size once, rising");
    }
  }
}

void check_options(const ProfileOptions& options, const MachineDevices& machine) {
  if (options.size_choice == SizeChoice::listed) check_sizes(options.micro_batch_sizes);
  if (options.size_choice == SizeChoice::automatic && options.mode == ProfileMode::isolated) {
    throw Error(ErrorKind::usage,
                "micro-batch sizes: auto would choose others for each layer alone; list them, such as 1,2,4");
  }
  parse_device_set(to_text(options.devices), machine);  // refuses what does not exist
  if (!is_floating(options.dtype)) {
    throw Error(ErrorKind::usage, "dtype " + std::string(name_of(options.dtype)) +
                                      " has no gradients; use float32, float64 or bfloat16");
  }
  if (options.autocast && options.dtype != DType::float32) {
    throw Error(ErrorKind::usage, "autocast casts products of float32 weights, and dtype is " +
                                      std::string(name_of(options.dtype)) + "; leave one of them out");
  }
  if (options.autocast && options.mode == ProfileMode::isolated) {
    throw Error(ErrorKind::usage,
                "autocast: types of a layer's inputs follow from the layers before it, which mode isolated "
                "does not run; profile in-place, or without autocast");
  }
  if (!memory_meter_installed()) {
    throw Error(ErrorKind::internal, "profiler: bytes are not counted; call prepare_process() first in main");
  }
}

/// Failures of the first pass belong to the model or the machine, not to the measurement.
[[noreturn]] void rethrow_as_input_error(const model::OutOfMemory* out_of_memory, const Error& error,
                                         const Environment& environment, int devices) {
  if (out_of_memory == nullptr) {
    throw Error(ErrorKind::data,
                std::string(error.what()) + "; correct the model, or leave this micro-batch size out");
  }
  throw Error(ErrorKind::device, std::string(error.what()) + "; each of " + std::to_string(devices) +
                                     " devices has " + to_text(Bytes(environment.memory.value / devices)) +
                                     ": profile a smaller model or size, or fewer devices at once");
}

}  // namespace

Profile profile_model(const ModelGraph& model, const ProfileOptions& options, Observer& observer,
                      const Environment& environment) {
  check_options(options, environment.machine);
  const ResolvedModel resolved = resolve(model);
  const int cores = static_cast<int>(environment.machine.cores.size());
  for (const std::string& finding :
       conditions_findings(options.devices, cores, environment.load, environment.cache_loss)) {
    observer.warning(finding);
  }
  Profile profile;
  try {
    profile = options.mode == ProfileMode::isolated
                  ? profile_layers_alone(resolved, options, observer, environment)
                  : profile_part({resolved, whole_model(resolved), options, observer, environment});
  } catch (const model::OutOfMemory& error) {
    rethrow_as_input_error(&error, error, environment, options.devices.count);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::run) throw;
    rethrow_as_input_error(nullptr, error, environment, options.devices.count);
  }
  for (const std::string& finding : profile_findings(profile)) observer.warning(finding);
  return profile;
}

Profile profile_model(const ModelGraph& model, const ProfileOptions& options, Observer& observer) {
  const SteadyClock clock;
  const DeviceSet& devices = options.devices;
  const bool cuda = devices.kind == DeviceKind::cuda && devices.first < cuda_device_count();
  Environment environment{.clock = clock,
                          .machine = machine_devices(),
                          .memory = cuda ? cuda_device_memory(devices.first) : machine_memory(),
                          .load = machine_load(),
                          .context = measurement_context()};
  if (devices.kind == DeviceKind::cpu) {
    environment.cache_loss = cache_loss(clock);
    environment.context["cache_loss"] = std::to_string(std::lround(100 * *environment.cache_loss)) + " %";
  }
  return profile_model(model, options, observer, environment);
}

}  // namespace pp::profile

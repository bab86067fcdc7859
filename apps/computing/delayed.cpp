// The functions of Computing, by the module that is loaded at the first call.
#include "apps/computing/computing.h"

#include <cstdlib>

#include "apps/computing/libtorch_place.h"
#include "libprofile/core/error.h"
#include "libprofile/device/build.h"
#include "libprofile/device/machine.h"
#include "libprofile/device/module.h"
#include "librun/setup/check_setup.h"
#include "librun/setup/checks.h"

namespace pp {
namespace {

bool loaded = false;

/// The LibTorch that is named, else where the module was told to look, else what is found.
void* entry() {
  const auto symbol = [] { return profile::module_symbol("pp-computing.so", "pp_computing"); };
  load_named_libtorch();
  try {
    return symbol();
  } catch (const Error&) {
    if (!load_found_libtorch()) throw;
    return symbol();
  }
}

const Computing& load() {
  const auto enter = reinterpret_cast<decltype(&pp_computing)>(entry());
  const Computing& module = *enter();
  module.prepare_process();
  loaded = true;
  return module;
}

const Computing& computing() {
  static const Computing& module = load();
  return module;
}

}  // namespace

namespace profile {

MachineDevices machine_devices() { return computing().machine_devices(); }

std::string seen_devices(DeviceKind kind) { return computing().seen_devices(kind); }

ProfiledDevice described(const DeviceSet& devices) { return computing().described(devices); }

Context measurement_context() { return computing().measurement_context(); }

Profile profile_model(const ModelGraph& model, const ProfileOptions& options, Observer& observer) {
  return computing().profile_model(model, options, observer);
}

}  // namespace profile

void model::check_bindable(const ResolvedModel& model) {
  if (run::calls_libtorch(model.graph)) computing().check_bindable(model);
}

void model::detail::rethrow_as_error() {
  computing().rethrow_as_error();
  std::abort();  // nobody gets here
}

namespace run {

OperationOverhead measure_overhead(const profile::DeviceSet& devices) {
  return computing().measure_overhead(devices);
}

Cluster measure_links(const LinkOptions& options, const std::function<void(double)>& progress) {
  return computing().measure_links(options, progress);
}

Cluster measure_cuda_links(std::span<const int> devices, const LinkSweep& sweep,
                           const std::function<void(double)>& progress) {
  return computing().measure_cuda_links(devices, sweep, progress);
}

std::unique_ptr<LinkMedium> make_gpu_medium(Peers& peers, std::span<const int> devices) {
  return computing().make_gpu_medium(peers, devices);
}

double measure_sum_overlap(Peers& peers, Bytes size, const Compute& compute) {
  return computing().measure_sum_overlap(peers, size, compute);
}

std::vector<std::string> check(const plan::Plan& plan, const RunOptions& options) {
  const profile::MachineDevices machine{
      profile::usable_cores(), [] { return computing().machine_devices().cuda(); }, profile::why_no_cuda()};
  const Setup setup = check_setup(plan, as_planned(options, plan), machine);
  model::check_bindable(setup.model);
  return setup.start.warnings;
}

std::vector<std::string> programs(const plan::Plan& plan, const RunOptions& options) {
  return computing().programs(plan, options);
}

WarmReport warm(const plan::Plan& plan, const RunOptions& options) { return computing().warm(plan, options); }

WarmReport warm_together(Peers& peers, const plan::Plan& plan, const RunOptions& options, Bytes joining) {
  return computing().warm_together(peers, plan, options, joining);
}

RunReport run(const plan::Plan& plan, const RunOptions& options, Observer& observer,
              const std::function<bool()>& interrupted) {
  return computing().run(plan, options, observer, interrupted);
}

RunReport run_together(Peers& peers, const plan::Plan& plan, const RunOptions& options, Observer& observer,
                       const std::function<bool()>& interrupted) {
  return computing().run_together(peers, plan, options, observer, interrupted);
}

void refuse_together(Peers& peers, const Error& why) {
  computing().refuse_together(peers, why);
  std::abort();  // nobody gets here
}

int runs_left_behind() { return loaded ? computing().runs_left_behind() : 0; }

InferReport infer(const plan::Plan& plan, const InferOptions& options, InferObserver& observer,
                  const std::function<bool()>& interrupted) {
  return computing().infer(plan, options, observer, interrupted);
}

Values open_values(const ModelGraph& model, const std::filesystem::path& weights, bool with_loss) {
  return computing().open_values(model, weights, with_loss);
}

}  // namespace run
}  // namespace pp

#include "librun/setup/served.h"

#include <algorithm>
#include <string>
#include <utility>

#include "libplan/schedule/versions.h"
#include "libprofile/core/error.h"
#include "libprofile/core/options.h"

namespace pp::run {

namespace {

using plan::WeightPolicy;

// Where nothing bounds them: the driver keeps so many steps under way. Between ranks an interruption has all of
// them finished, unless a seed draws the order, which is that of one process.
constexpr Step kFree = 64, kFreeBetweenRanks = 8;

// Options that only some of the schedules read.
void check_given(const plan::Plan& plan, const RunOptions& options) {
  for (const OptionRow& row : training_options()) {
    if (row.read_by.empty() || !row.given(&options) || row.read_by.find(plan.schedule.name) != row.read_by.npos)
      continue;
    refuse(ErrorKind::usage, name_of(row) + ": schedule " + plan.schedule.name +
                                 " does not read it; leave it out, or plan with " + std::string(row.read_by));
  }
}

// One replica's statistics are not those of all, and nobody brings them together.
void check_no_batch_norm(const plan::Plan& plan, const ResolvedModel& model) {
  for (std::size_t i = 0; i < model.layers.size(); ++i) {
    if (batch_norms(model, static_cast<int>(i)).empty()) continue;
    refuse(ErrorKind::data,
           "layer \"" + model.graph.layers[i].name +
               "\": batch norm: its running statistics would be each replica's own under schedule " +
               plan.schedule.name + "; plan with data-parallel, or use layer_norm or group_norm");
  }
}

// A replica steps on what no other one sees: only a step without state means the same there.
void check_optimizer(const plan::Plan& plan, const RunOptions& options) {
  const WeightPolicy policy = plan.schedule.weight_policy;
  const auto optimizer = plan.training.optimizer;
  const std::string name(name_of(optimizer));
  if (policy == WeightPolicy::downpour && optimizer != OptimizerName::sgd &&
      optimizer != OptimizerName::adagrad)
    refuse(ErrorKind::usage, "schedule downpour: its server runs sgd or adagrad, the plan's optimizer is " +
                                 name + "; plan with --optimizer sgd or adagrad");
  if (policy != WeightPolicy::ssp && policy != WeightPolicy::hogwild) return;
  if (optimizer != OptimizerName::sgd)
    refuse(ErrorKind::usage, "schedule " + plan.schedule.name +
                                 ": updates are plain gradient descent, the plan's "
                                 "optimizer is " +
                                 name + "; plan with --optimizer sgd");
  if (state_ratio_of(optimizer, options.optimizer) > 0)
    refuse(ErrorKind::usage, "schedule " + plan.schedule.name +
                                 ": updates are plain gradient descent, without momentum; give --momentum 0");
}

// What looks at the gradient of all replicas before an update.
void check_meetings(const plan::Plan& plan, const RunOptions& options) {
  std::string option;
  for (const OptionRow& row : training_options())
    if (option.empty() && !row.found_together.empty() && row.given(&options)) option = name_of(row);
  if (option.empty() && options.scales_losses()) option = "--autocast float16";
  if (option.empty()) return;
  refuse(ErrorKind::usage,
         option + ": under schedule " + plan.schedule.name +
             " no replica sees the whole gradient before the update; plan with data-parallel");
}

void check_place(const plan::Plan& plan, const Placement& placement) {
  if (!placement.alone() && plan.schedule.weight_policy == WeightPolicy::hogwild)
    refuse(ErrorKind::usage, "schedule hogwild: its replicas change the same memory without a lock, and " +
                                 std::to_string(placement.ranks) +
                                 " ranks share none; start it without mpirun, or plan with downpour");
  for (const Device& device : plan.devices) {
    if (device.kind == DeviceKind::cpu) continue;
    refuse(ErrorKind::device,
           "schedule " + plan.schedule.name + ": device " + to_text(device) +
               ": its server is memory of the host; plan for CPU devices, or with data-parallel");
  }
}

}  // namespace

Step clock_bound(const plan::Plan& plan, const RunOptions& options, const Placement& placement) {
  switch (plan.schedule.weight_policy) {
    case WeightPolicy::server: return 0;
    case WeightPolicy::ssp: return options.staleness.value_or(kDefaultStaleness);
    default: return placement.alone() || options.interleave ? kFree : kFreeBetweenRanks;
  }
}

void check_served(const plan::Plan& plan, const ResolvedModel& model, const RunOptions& options,
                  const Placement& placement) {
  check_given(plan, options);
  if (!plan::is_served(plan.schedule.weight_policy)) return;
  check_place(plan, placement);
  check_no_batch_norm(plan, model);
  check_optimizer(plan, options);
  check_meetings(plan, options);
}

}  // namespace pp::run

#include "librun/setup/served.h"

#include <algorithm>
#include <string>
#include <utility>

#include "libplan/schedule/versions.h"
#include "libprofile/core/error.h"
#include "librun/options/settings.h"

namespace pp::run {

namespace {

using plan::WeightPolicy;

// Where nothing bounds them: the driver keeps so many steps under way. Between ranks an interruption has all of
// them finished, unless a seed draws the order, which is that of one process.
constexpr Step kFree = 64, kFreeBetweenRanks = 8;
constexpr Step kMostStaleness = 1000;  // each is a gradient of every replica in memory
constexpr int kMostEvery = 1'000'000;

// Options that only some of the schedules read.
void check_given(const plan::Plan& plan, const RunOptions& options) {
  const WeightPolicy policy = plan.schedule.weight_policy;
  const auto only = [&](bool given, const char* option, bool reads, const char* who) {
    if (!given || reads) return;
    refuse(ErrorKind::usage, std::string(option) + ": schedule " + plan.schedule.name +
                                 " does not read it; leave it out, or plan with " + who);
  };
  const bool downpour = policy == WeightPolicy::downpour;
  only(options.push_every.has_value(), "--push-every", downpour, "downpour");
  only(options.fetch_every.has_value(), "--fetch-every", downpour, "downpour");
  only(options.staleness.has_value(), "--staleness", policy == WeightPolicy::ssp, "ssp");
  only(options.interleave.has_value(), "--interleave", plan::is_served(policy), "downpour, ssp or hogwild");
  const auto every = [](std::optional<int> value, const char* name) {
    require(value.value_or(1) >= 1 && value.value_or(1) <= kMostEvery, name, value.value_or(1), "1 to 1000000");
  };
  every(options.push_every, "push_every");
  every(options.fetch_every, "fetch_every");
  const Step staleness = options.staleness.value_or(0);
  require(staleness >= 0 && staleness <= kMostStaleness, "staleness", static_cast<double>(staleness),
          "0 to 1000");
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
  const char* const option = options.clip_norm         ? "--clip-norm"
                             : options.on_nan          ? "--on-nan"
                             : options.loss_scale      ? "--loss-scale"
                             : options.scales_losses() ? "--autocast float16"
                                                       : nullptr;
  if (option == nullptr) return;
  refuse(ErrorKind::usage,
         std::string(option) + ": under schedule " + plan.schedule.name +
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

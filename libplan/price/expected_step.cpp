#include "libplan/price/expected_step.h"

#include <algorithm>

#include "libplan/cost/priced_model.h"
#include "libplan/price/predict.h"
#include "libplan/simulate/expected_step.h"

namespace pp::plan {
namespace {

bool has_samples(const LayerProfile& layer) {
  return std::ranges::any_of(layer.points, [](const LayerPoint& point) {
    return point.forward.samples > 0 || point.backward.samples > 0;
  });
}

/// The profile, and the size of the micro-batches that stages are priced for.
struct Source {
  const Profile& profile;
  int size;
  CurveOptions curve;

  LayerSpread of(const LayerProfile& layer) const { return spread_layer(layer, size, curve); }
};

void add_layer(StageSpread& sum, const LayerSpread& layer) {
  sum.forward = sum.forward + layer.forward;
  sum.backward = sum.backward + layer.backward;
  sum.input_gradient = sum.input_gradient + layer.input_gradient;
  sum.weight_gradient = sum.weight_gradient + layer.weight_gradient;
}

/// That of the whole model's update, as large as the stage's update is beside it.
Spread update_spread(const Plan& plan, const Profile& profile, Seconds update) {
  const OptimizerProfile* measured = profiled_optimizer(profile, plan.training.optimizer);
  if (measured == nullptr || measured->update.median <= Seconds{}) return {};
  return spread_of(measured->update) * (update / measured->update.median);
}

StageSpread stage_spread(const Plan& plan, const Source& source, std::size_t s) {
  const Stage& stage = plan.stages[s];
  StageSpread sum;
  for (const std::string& name : stage.layers) {
    const LayerSpread layer = source.of(*std::ranges::find(source.profile.layers, name, &LayerProfile::name));
    add_layer(sum, layer);
    if (std::ranges::count(stage.recompute, name) == 0) continue;
    sum.backward = sum.backward + layer.forward;
    sum.input_gradient = sum.input_gradient + layer.forward;
  }
  if (s + 1 == plan.stages.size() && source.profile.loss) add_layer(sum, source.of(*source.profile.loss));
  if (const auto& overhead = source.profile.operation_overhead) {
    const Spread backward = spread_of(overhead->backward);
    add_layer(sum, {spread_of(overhead->forward), backward, backward, backward});
  }
  sum.recompute = sum.forward;
  const double speed = slowest_speed(plan, stage);
  for (Spread* spread :
       {&sum.forward, &sum.backward, &sum.input_gradient, &sum.weight_gradient, &sum.recompute})
    *spread = *spread * (1 / speed);
  sum.update = update_spread(plan, source.profile, plan.predicted.stages[s].update);
  return sum;
}

}  // namespace

void add_expected_step(Plan& plan, const Profile& profile, const PlanRequest& request) {
  if (std::ranges::none_of(profile.layers, has_samples)) return;
  const int largest = micro_batch_sizes(plan.training.mini_batch, plan.training.micro_batches).front();
  for (std::size_t s = 0; s < plan.stages.size(); ++s) {
    const int kind = device_of(plan, plan.stages[s].workers.front()).profile;
    const Source source{profile.of_kind(kind), largest, {request.extrapolate, request.linear_batch}};
    plan.predicted.stages[s].spread = stage_spread(plan, source, s);
  }
  const bool synchronous = require_schedule(plan.schedule.name).synchronous;
  const auto excess = expected_excess(simulation_input(plan, synchronous ? 1 : steady_updates(plan)));
  if (!excess) return;
  plan.predicted.expected_step =
      plan.predicted.step + *excess * (synchronous ? 1 : plan.training.micro_batches);
}

}  // namespace pp::plan

#include "libplan/price/corrected.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string_view>

#include "libprofile/core/index.h"

namespace pp::plan {

namespace {

void scale(TimeStat& time, double factor) {
  for (Seconds* part : {&time.median, &time.low, &time.high}) *part *= factor;
}

void scale(LayerProfile& layer, const LayerCorrection& by) {
  for (LayerPoint& point : layer.points) {
    scale(point.forward, by.forward);
    scale(point.backward, by.backward);
    if (point.input_gradient) scale(*point.input_gradient, by.input_gradient);
    if (point.weight_gradient) scale(*point.weight_gradient, by.weight_gradient);
    for (std::optional<LayerTimes>* times : {&point.first, &point.alone, &point.in_part}) {
      if (!*times) continue;
      scale((*times)->forward, by.forward);
      scale((*times)->backward, by.backward);
      scale((*times)->input_gradient, by.input_gradient);
      scale((*times)->weight_gradient, by.weight_gradient);
    }
  }
}

void scale(OptimizerProfile& optimizer, double factor) {
  scale(optimizer.update, factor);
  for (UpdatePoint& part : optimizer.parts) scale(part.update, factor);
  if (optimizer.new_version) scale(optimizer.new_version->update, factor);
}

double parameter_bytes(const PlanGraph& graph, std::span<const int> layers) {
  double sum = 0;
  for (const int layer : layers) sum += static_cast<double>(graph.layers[at(layer)].parameter_bytes);
  return sum;
}

}  // namespace

Profile corrected(const Profile& profile, const Calibration& calibration) {
  Profile result = profile;
  for (const LayerCorrection& correction : calibration.layers) {
    const auto layer = std::ranges::find(result.layers, correction.layer, &LayerProfile::name);
    if (layer != result.layers.end()) scale(*layer, correction);
  }
  if (result.loss && calibration.loss) scale(*result.loss, *calibration.loss);
  for (const UpdateCorrection& update : calibration.updates) {
    const auto optimizer = std::ranges::find(result.optimizers, update.optimizer, &OptimizerProfile::name);
    if (optimizer != result.optimizers.end()) scale(*optimizer, update.factor);
  }
  return result;
}

Cluster corrected(Cluster cluster, const Calibration& calibration) {
  for (const MeasuredSpeed& measured : calibration.devices) {
    for (Device& device : cluster.devices)
      if (device.id == measured.device && device.node == measured.node) device.speed = measured.speed;
  }
  return cluster;
}

std::vector<Crowding> crowding_of_stages(const PricingContext& context, const Assignment& assignment,
                                         int devices) {
  const auto node = [&](int worker) -> std::string_view {
    return context.cluster.devices[at(assignment.worker_devices[at(worker)])].node;
  };
  std::vector<double> held(assignment.programs.size(), 0);
  std::map<std::string_view, double> held_by_node;
  double all = 0;
  for (int s = 0; s < assignment.stages(); ++s) {
    const double bytes = parameter_bytes(context.graph, assignment.stage_layers[at(s)]);
    all += bytes;
    for (const int worker : assignment.stage_workers[at(s)]) {
      held[at(worker)] += bytes;
      held_by_node[node(worker)] += bytes;
    }
  }
  if (all <= 0) return std::vector<Crowding>(assignment.stage_workers.size());
  std::vector<Crowding> stages;
  for (const std::vector<int>& workers : assignment.stage_workers) {
    double most = 0, most_on_node = 0;
    for (const int worker : workers) {
      most = std::max(most, held[at(worker)]);
      most_on_node = std::max(most_on_node, held_by_node.at(node(worker)));
    }
    stages.push_back({crowding(most, all, devices), crowding_beside(most_on_node / all, devices)});
  }
  return stages;
}

}  // namespace pp::plan

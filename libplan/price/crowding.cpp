#include "libplan/price/crowding.h"

#include <algorithm>
#include <map>
#include <span>
#include <string_view>

#include "libprofile/core/index.h"

namespace pp::plan {
namespace {

double parameter_bytes(const PlanGraph& graph, std::span<const int> layers) {
  double sum = 0;
  for (const int layer : layers) sum += static_cast<double>(graph.layers[at(layer)].parameter_bytes);
  return sum;
}

}  // namespace

std::vector<Crowding> crowding_of_stages(const PricingContext& context, const Assignment& assignment) {
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
  const int devices = context.model.profiled_devices;
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

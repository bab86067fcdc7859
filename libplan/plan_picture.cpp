#include "libplan/plan_picture.h"

#include <algorithm>

namespace pp::plan {

std::string layer_range(const Stage& stage) {
  if (stage.layers.size() == 1) return stage.layers.front();
  return stage.layers.front() + " .. " + stage.layers.back();
}

SvgOptions picture_names(const Plan& plan) {
  SvgOptions names;
  for (const Stage& stage : plan.stages) names.stage_layers.push_back(layer_range(stage));
  for (const Worker& worker : plan.workers) {
    const Device& device = *std::ranges::find(plan.devices, worker.device, &Device::id);
    names.devices.push_back((device.node.empty() ? "" : device.node + ' ') + to_text(device));
    names.limits.push_back(device.memory);
  }
  return names;
}

}  // namespace pp::plan

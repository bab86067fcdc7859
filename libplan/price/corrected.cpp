#include "libplan/price/corrected.h"

#include <algorithm>
#include <optional>

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

}  // namespace pp::plan

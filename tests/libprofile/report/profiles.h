// Small profiles with round numbers.
#pragma once

#include <string>
#include <vector>

#include "libprofile/core/profile.h"

namespace pp::profile::test {

struct LayerSpec {
  std::string name;
  double forward_ms = 0, backward_ms = 0;  ///< of one sample; a micro-batch takes as often as much
  std::int64_t weights = 0;                ///< bytes
  std::int64_t saved = 0;                  ///< bytes of one sample
};

/// Intervals reach from 90 % to 110 % of the median.
inline TimeStat spread(double ms) {
  return {Seconds(1e-3 * ms), Seconds(0.9e-3 * ms), Seconds(1.1e-3 * ms), 10};
}

inline LayerPoint out_of_memory(std::int64_t size) {
  LayerPoint point;
  point.micro_batch_size = size;
  point.out_of_memory = true;
  return point;
}

/// A chain of relus under these names, without a loss. Complete: it can be written and read back.
inline Profile make_profile(const std::vector<LayerSpec>& layers, const std::vector<std::int64_t>& sizes) {
  Profile profile;
  profile.model.name = "example";
  profile.model.inputs = {{"x", {{4}, DType::float32}}};
  profile.device.name = "a processor";
  profile.micro_batch_sizes = sizes;
  for (const LayerSpec& spec : layers) {
    const std::string input = profile.model.layers.empty() ? "x" : profile.model.layers.back().name;
    profile.model.layers.push_back(
        {.name = spec.name, .op = "relu", .inputs = {input}, .attributes = {}, .weights_of = {}});
    LayerProfile& layer = profile.layers.emplace_back();
    layer.name = spec.name;
    layer.parameters = Bytes(spec.weights);
    for (const std::int64_t size : sizes) {
      const auto samples = static_cast<double>(size);
      LayerPoint& point = layer.points.emplace_back();
      point.micro_batch_size = size;
      point.forward = spread(samples * spec.forward_ms);
      point.backward = spread(samples * spec.backward_ms);
      point.saved = Bytes(size * spec.saved);
    }
  }
  if (!layers.empty()) profile.model.outputs = {layers.back().name};
  profile.model_hash = model_hash(profile.model);
  return profile;
}

}  // namespace pp::profile::test

// The second step of a profile: the times of every layer, under every condition, at each micro-batch size.
#pragma once

#include <vector>

#include "libprofile/measure/layer_samples.h"
#include "libprofile/measure/measure_bytes.h"

namespace pp::profile {

struct MeasuredTimes {
  std::vector<LayerSamples> samples;  ///< per size
  std::vector<int> in_flight;         ///< per size: micro-batches in a pipeline's first part
  Context findings;                   ///< what the timing says about the machine
};

/// Adds to the devices the parts of the model that they share, where model and memory have room for them; a
/// warning where memory has none.
MeasuredTimes measure_times(ProfiledDevices& devices, const Subject& subject, const MeasuredBytes& bytes);

}  // namespace pp::profile

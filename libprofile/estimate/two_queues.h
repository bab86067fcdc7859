// The times of a model's layers when host and device are two queues: the host launches one kernel after the
// other and does not wait, the device runs them in order.
#pragma once

#include <vector>

#include "libprofile/estimate/device_spec.h"
#include "libprofile/estimate/layer_work.h"

namespace pp::profile {

/// What a pass through the model needs beside its work.
struct PassRates {
  const DeviceSpec& device;
  const TypeRates& rates;   ///< of weights and activations
  const TypeRates& narrow;  ///< of products in a narrow type; the same without one
  const TrainerSpec& trainer;
  Link tensor_link;  ///< between the members of a tensor group
  int tensor_degree = 1;
  Link context_link = {};  ///< between the members of a context group
  Link expert_link = {};   ///< between those that have other experts, of several nodes where they are in some
  Link near_link = {};     ///< between those of one node, then
};

struct LayerTime {
  Seconds forward{}, input_gradient{}, weight_gradient{};
};

/// Per layer what it adds to the pass: its kernels on the device and the time that the device waits for their
/// launches. Kernels of earlier layers hide launches of later ones. A backward counts in the same order: the
/// kernels of the last layers, often the longest, would else hide launches of layers that another stage runs.
/// Gathers of a context group and exchanges of tokens take their bytes / bandwidth and a latency each;
/// exchanges over nodes and within them go on at once. All-reduces take 2 (t - 1) / t bytes / bandwidth + 2 (t
/// - 1) latency of the device and a launch each. Times are whole picoseconds, so that equal layers take equal
/// times. O(works).
std::vector<LayerTime> layer_times(const std::vector<LayerWork>& works, const PassRates& rates);

}  // namespace pp::profile

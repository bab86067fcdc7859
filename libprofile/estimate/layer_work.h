// What the layers of a model do and keep, by the operations' own arithmetic: FLOPs, bytes moved, bytes kept for
// backward. Shapes alone: nothing is allocated.
#pragma once

#include <cstdint>
#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/estimate/device_spec.h"

namespace pp::profile {

/// Of one layer, or the loss, for one micro-batch.
struct LayerWork {
  Work forward, input_gradient, weight_gradient;  ///< no kernels: there is none
  double output = 0;                              ///< bytes
  double saved = 0;        ///< kept for backward, each tensor at the first layer that keeps it
  double saved_input = 0;  ///< the part that is the layer's own input
  double workspace = 0;    ///< gradients of inputs and outputs, and what is made inside
};

/// Of all layers, then of the loss, where the model has one. Throws pp::Error (data) for an operation that has
/// no arithmetic.
std::vector<LayerWork> layer_work(const ResolvedModel& model, DType dtype, std::int64_t micro_batch_size);

}  // namespace pp::profile

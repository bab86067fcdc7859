// What a segment can know before any tensor exists: which tensors enter and leave it, in which order its
// layers run, where each input comes from, and which of them want a gradient. Free of Torch; so is the
// question whether LibTorch can run a model at all.
#pragma once

#include <string>
#include <vector>

#include "libprofile/core/model/model_graph.h"

namespace pp::model::detail {

/// A layer of the segment, or the loss behind the last one. Tensors are numbered: first the segment's inputs,
/// then every output of every layer, the loss last.
struct PlannedLayer {
  int position = 0;                     ///< within the segment; the number of layers for the loss
  int layer = -1;                       ///< model-wide; -1 for the loss
  std::vector<int> sources{};           ///< tensor of each input
  std::vector<bool> source_gradient{};  ///< which inputs want a gradient
  int first_output = 0;                 ///< tensor of its output 0, the others follow
  int output_count = 1;
  bool backward = false;   ///< it computes gradients of inputs or of trained parameters
  bool recompute = false;  ///< its forward runs again inside backward; between them it keeps its inputs only
};

struct SegmentPlan {
  std::vector<int> layers;
  bool with_loss = false;
  std::vector<TensorSource> inputs;
  std::vector<TensorSource> outputs;
  std::vector<bool> input_gradient;
  std::vector<PlannedLayer> order;  ///< in the order of execution
  std::vector<int> output_tensor;   ///< of outputs[k]
  std::vector<int> last_use;        ///< per tensor: the last layer that reads it; -1: none here
  std::vector<bool> leaves;         ///< per tensor: it is one of the outputs, or the loss
  int tensor_count() const { return static_cast<int>(last_use.size()); }
};

/// `recompute`: which of `layers` run again inside backward. O(layers + edges) of the whole model. Throws
/// pp::Error (internal) when `layers` is empty, not ascending or out of range, or lacks one of `recompute`.
SegmentPlan plan_segment(const ResolvedModel& model, std::vector<int> layers, bool with_loss,
                         const std::vector<int>& recompute = {});

/// `layer "conv1" (conv2d)`, `loss (mse)`
std::string layer_name(const ResolvedModel& model, const PlannedLayer& planned);

}  // namespace pp::model::detail

namespace pp::model {

/// Throws pp::Error (data) for a layer, or the loss, that can be planned but not run, and for a call that
/// LibTorch does not take; names it. Computes.
void check_bindable(const ResolvedModel& model);

}  // namespace pp::model

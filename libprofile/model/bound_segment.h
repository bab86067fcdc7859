// What a segment runs: its plan, and for each layer the code that its op and attributes, its call of
// LibTorch or its small graph of both say, looked up once.
#pragma once

#include <vector>

#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/ops.h"
#include "libprofile/model/segment_plan.h"

namespace pp::model::detail {

struct BoundSegment {
  SegmentPlan plan;
  MemoryFormat format = MemoryFormat::contiguous;  ///< of what passes between layers, and of weights
  std::vector<BoundLayer> layers;                  ///< per layer of the plan
};

/// Throws pp::Error with the name of the layer that cannot be run.
BoundSegment bind_segment(const ResolvedModel& model, SegmentPlan plan, MemoryFormat format);

}  // namespace pp::model::detail

namespace pp::model {

/// `layer`: of op graph or aten. Throws pp::Error (data) with the name of the node that cannot be run.
BoundLayer bind_graph(const Layer& layer, const ResolvedLayer& resolved);
/// The loss as one layer of op graph.
BoundLayer bind_loss_graph(const LossSpec& loss, const ResolvedLayer& resolved);

}  // namespace pp::model

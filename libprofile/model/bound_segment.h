// What a segment runs: its plan, and for each layer the code that its op and attributes say, looked up once.
#pragma once

#include <vector>

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

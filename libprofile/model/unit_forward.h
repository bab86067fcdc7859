// The forward of one unit of a segment, with its graph or without: first in the forward walk, again inside
// backward where the unit is recomputed.
#pragma once

#include <span>
#include <vector>

#include "libprofile/model/layer_graph.h"
#include "libprofile/model/segment.h"
#include "libprofile/model/segment_plan.h"

namespace pp::model::detail {

/// What all units of a pass share. References live as long as the walk.
struct UnitForward {
  const ResolvedModel& model;
  const Weights& weights;
  const PassContext& context;
  std::vector<BatchStatistics>& statistics;  ///< receives those of batch norm in training

  /// Outputs, detached and dense. `inputs` as the unit's sources. With `graph`, which is empty, the operations
  /// are recorded there.
  std::vector<at::Tensor> run(const Unit& unit, std::vector<at::Tensor> inputs, LayerGraph* graph) const;

 private:
  std::vector<at::Tensor> loss(std::span<const at::Tensor> inputs) const;
  std::vector<at::Tensor> layer(const Unit& unit, std::span<const at::Tensor> inputs, LayerGraph* graph) const;
};

}  // namespace pp::model::detail

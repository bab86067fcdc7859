// A segment's walks over its layers, forward and backward: what a pass keeps between the two, and the memory
// that they work in.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "libprofile/model/gradient_sums.h"
#include "libprofile/model/layer_pass.h"
#include "libprofile/model/segment.h"
#include "libprofile/model/segment_plan.h"

namespace pp::model::detail {

struct PassState {
  std::shared_ptr<const Weights> weights;
  PassContext context;             ///< of the forward: recomputed layers run in it again
  std::vector<LayerGraph> graphs;  ///< per layer of the segment's plan; empty: nothing to do in backward
  at::TensorOptions loss_options;  ///< of the loss gradient; default without a loss
  std::vector<BatchStatistics> statistics;  ///< empty memory for those of the pass

  // Within one walk, empty between two; per tensor of the plan.
  std::vector<at::Tensor> tensors;
  std::vector<GradientSum> sums;
  EngineCall call;
};

/// Passes that have ended, whose memory the next ones use. Thread-safe.
class PassStates {
 public:
  explicit PassStates(const SegmentPlan& plan)
      : layers_(plan.order.size()), tensors_(static_cast<std::size_t>(plan.tensor_count())) {}

  std::unique_ptr<PassState> take();
  /// Lets go of whatever `state` still holds.
  void give(std::unique_ptr<PassState> state);
  void give(std::vector<BatchStatistics> statistics);

 private:
  std::size_t layers_, tensors_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<PassState>> free_;
};

}  // namespace pp::model::detail

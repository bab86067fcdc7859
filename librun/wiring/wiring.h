// What stages hand to each other and who does what, derived from the model's tensor edges and the plan's
// programs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "libplan/plan/plan.h"
#include "libprofile/core/model/model_graph.h"
#include "libprofile/model/segment.h"

namespace pp::run {

struct StageInput {
  TensorSource source;
  int producer = -1;      ///< stage; -1: from the data
  bool gradient = false;  ///< goes back to the producer
};

struct StageOutput {
  struct Consumer {
    StageId stage{};
    bool gradient = false;  ///< comes back
  };
  TensorSource source;
  std::vector<Consumer> consumers;  ///< descending, the order in which gradients are folded
};

struct StageWiring {
  std::vector<StageInput> inputs;    ///< in the order of Segment::inputs()
  std::vector<StageOutput> outputs;  ///< in the order of Segment::outputs()
};

/// Model-wide layer indices of every stage, ascending.
std::vector<std::vector<int>> stage_layers(const plan::Plan& plan);

/// The same of the layers that a stage runs again inside backward.
std::vector<std::vector<int>> recomputed_layers(const plan::Plan& plan);

/// One segment per stage; the loss, if there is one, stands in the last. The model must outlive them.
std::vector<model::Segment> make_segments(const plan::Plan& plan, const ResolvedModel& model);

/// Every tensor goes from its producer's stage once to each stage that reads it (direct skips).
std::vector<StageWiring> wire(std::span<const model::Segment> segments);

/// Whether the stage's replicas divide the optimizer's state.
bool shares_state(const plan::Plan& plan, StageId stage);

/// What each worker does again and again: the plan's streams, its programs as streams of steps. Indices are
/// micro-batches, also where the plan counts clock steps.
std::vector<plan::Stream> training_streams(const plan::Plan& plan);

/// The forward-only pipeline: micro-batch t of a stage on replica t mod r, of its workers in their order.
std::vector<plan::Stream> forward_streams(const plan::Plan& plan);
/// The same where weights are swapped: the forwards of a step, task by task.
std::vector<plan::Stream> swapped_forward_streams(const plan::Plan& plan);

/// The worker whose stream has the forward of a stage on a micro-batch (libplan/schedule/placement.h), for as
/// many micro-batches as there may be; or that which has the backward, where swapped weights let it be another.
class Owners {
 public:
  enum class Of { forwards, backwards };
  /// Throws pp::Error (data) for turns of workers that meet only after very many micro-batches.
  Owners(std::span<const plan::Stream> streams, int stages, Of what = Of::forwards);
  WorkerId of(StageId stage, std::int64_t micro_batch) const {
    const std::vector<WorkerId>& turns = turns_[index(stage)];
    return turns[static_cast<std::size_t>(micro_batch) % turns.size()];
  }
  /// Of micro-batches 0, 1, ..., after which they begin again.
  const std::vector<WorkerId>& turns(StageId stage) const { return turns_[index(stage)]; }

 private:
  std::vector<std::vector<WorkerId>> turns_;  ///< per stage, over the common period of its workers
};

}  // namespace pp::run

// What stages hand to each other and who does what, derived from the model's tensor edges and the plan's
// programs.
#pragma once

#include <span>
#include <vector>

#include "libplan/plan.h"
#include "libprofile/core/model_graph.h"
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

/// One segment per stage; the loss stands in the last one. The model must outlive them.
std::vector<model::Segment> make_segments(const plan::Plan& plan, const ResolvedModel& model);

/// Every tensor goes from its producer's stage once to each stage that reads it (direct skips).
std::vector<StageWiring> wire(std::span<const model::Segment> segments);

/// [stage][micro-batch] -> the worker whose program has the forward (semantics.md, Ownership). `programs` are
/// finite.
using Owners = std::vector<std::vector<WorkerId>>;
Owners find_owners(std::span<const plan::Program> programs, int stages, int micro_batches);

/// Programs of all workers for one step, or of one epoch of `micro_batches` mini-batches where they are
/// streams.
std::vector<plan::Program> finite_programs(const plan::Plan& plan, int micro_batches);

/// Messages that may wait unread, [to][from]: twice what the in-flight windows of a valid plan can produce, so
/// that only a sender without any dependence on its receiver ever waits.
std::vector<std::vector<int>> mailbox_capacity(const plan::Plan& plan, std::span<const StageWiring> wiring,
                                               std::span<const plan::Program> programs);

}  // namespace pp::run

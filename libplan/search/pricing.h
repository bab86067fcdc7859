// From stages, workers and programs to what the simulator says about them. Stages may be any sets of layers
// here, so that plans written by hand are priced as the planner's are.
#pragma once

#include <string>
#include <vector>

#include "libplan/cost/graph.h"
#include "libplan/cost/priced_model.h"
#include "libplan/cost/recompute.h"
#include "libplan/plan.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/cluster.h"

namespace pp::plan {

/// Who does what where. Workers and devices by position.
struct Assignment {
  std::vector<std::vector<int>> stage_layers;   ///< layers of the graph
  std::vector<std::vector<int>> stage_workers;  ///< its replicas
  std::vector<int> worker_devices;              ///< position in the cluster
  std::vector<WorkerProgram> programs;          ///< per worker; R for stages that run again as a whole
  std::vector<std::vector<int>> recompute;  ///< per stage, layers that run again inside backward; empty: none
  int micro_batches = 1;                    ///< per update
  bool synchronous = true;
  WeightPolicy policy = WeightPolicy::flush;

  int stages() const { return static_cast<int>(stage_layers.size()); }
};

/// Micro-batches after which every replica of every stage has had equally many turns; of a stream, whole
/// updates, and of as many stages as a simulation affords (stream_round()).
int round_of(const Assignment& assignment);

/// Micro-batches of a stream to simulate for steady_period(): at least 20 turns per stage, in thirds of whole
/// rounds that are no shorter than fill and drain, unless that is more than the simulator should be given.
int steady_length(const Assignment& assignment);

struct PricingContext {
  const PlanGraph& graph;
  const PricedModel& model;
  const Cluster& cluster;
  OptimizerCost optimizer;
  double all_reduce_overlap = 0;
};

/// The layers of a stage as they may run again, on the device of the profile.
std::vector<RecomputeUnit> stage_units(const PricingContext& context, const Assignment& assignment, int stage);

/// Micro-batches that the busiest worker of the stage has in flight: forwards whose backward has not ended.
int window_of(const Assignment& assignment, int stage);

/// Costs of every stage, on its slowest device, and the tensors that go straight from stage to stage.
struct PricedStages {
  std::vector<StageCosts> stages;
  std::vector<StageEdge> edges;
  std::vector<std::vector<StageId>> tied;  ///< per group, the stages with a copy of its weights
  std::vector<Seconds> tied_all_reduce;    ///< per group, over all their workers
};
PricedStages price_stages(const PricingContext& context, const Assignment& assignment);

/// The simulator's input for one step; streams are expanded to `micro_batches` of them.
SimulationInput make_input(const PricedStages& priced, const Assignment& assignment, const Cluster& cluster,
                           const std::vector<double>& scale, double all_reduce_overlap, int micro_batches);

/// Prediction::step of a synchronous assignment alone, in a third of the time.
Seconds simulated_step(const PricedStages& priced, const Assignment& assignment, const PricingContext& context);

/// Step time, busy times, memory and traffic by the simulator. Streams run long enough for a steady period.
/// Throws pp::Error (data) on a deadlock.
Prediction simulate_prediction(const PricedStages& priced, const Assignment& assignment,
                               const PricingContext& context);

}  // namespace pp::plan

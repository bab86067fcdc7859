// From stages, workers and programs to what every stage costs. Stages may be any sets of layers here, so that
// plans written by hand are priced as the planner's are.
#pragma once

#include <string>
#include <vector>

#include "libplan/cost/graph.h"
#include "libplan/cost/priced_model.h"
#include "libplan/cost/recompute.h"
#include "libplan/plan/plan.h"
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
  Shard shard = Shard::none;
  RuleSet rules = RuleSet::standard;

  int stages() const { return static_cast<int>(stage_layers.size()); }
};

struct PricingContext {
  const PlanGraph& graph;
  const PricedModel& model;
  const Cluster& cluster;
  OptimizerCost optimizer;
  double all_reduce_overlap = 0;
  SwapLink swap = {};
  std::vector<OptimizerCost> optimizers = {};  ///< optimizer_costs(), where PricedModel::others are

  const OptimizerCost& optimizer_of(int kind) const { return kind == 0 ? optimizer : optimizers[at(kind)]; }
};

/// Per stage, its layers as they may run again, on the first of its kinds of devices at its profiled speed.
std::vector<std::vector<RecomputeUnit>> stage_units(const PricingContext& context,
                                                    const Assignment& assignment);

/// Micro-batches that the busiest worker of the stage has in flight: forwards whose backward has not ended.
int window_of(const Assignment& assignment, int stage);

/// Costs of every stage, of each pass on the device that takes longest for it, and the tensors that go straight
/// from stage to stage.
struct PricedStages {
  std::vector<StageCosts> stages;
  std::vector<StageEdge> edges;
  std::vector<std::vector<StageId>> tied;  ///< per group, the stages with a copy of its weights
  std::vector<Seconds> tied_all_reduce;    ///< per group, over all their workers
  SwapLink swap = {};
};
PricedStages price_stages(const PricingContext& context, const Assignment& assignment);

}  // namespace pp::plan

// The loads of our cost model (`--cost-model pp`) over a chain: what the searches minimise, and what no plan
// can beat.
#pragma once

#include <vector>

#include "libplan/cost/chain.h"
#include "libplan/cost/links.h"
#include "libplan/cost/memory.h"
#include "libplan/cost/recompute_time.h"
#include "libplan/cost/stage_cost.h"

namespace pp::plan {

enum class LoadKind {
  period,        ///< asynchronous: seconds per update in steady state
  period_bound,  ///< the same with the tensors that every stage must exchange whatever the others are
  step,          ///< synchronous: the steady part of a step
  step_bound,    ///< certificate of the steady step time: fill and drain around the stage, or its own work and
                 ///< update
  makespan_bound,  ///< the same of one isolated step: the fill in front of the stage counts in both
};

struct LoadOptions {
  LoadKind kind = LoadKind::step;
  int micro_batches = 1;                           ///< per step or update
  double all_reduce_overlap = 0;                   ///< share of the last backward that hides the all-reduce
  Link link;                                       ///< of cuts and all-reduces
  RecomputeMode recompute = RecomputeMode::never;  ///< its time is part of every stage's load
};

/// Chain and memory must outlive it; `memory` null: everything fits.
class ChainLoad : public StageCost {
 public:
  ChainLoad(const Chain& chain, const LoadOptions& options, const StageMemory* memory, int max_replicas);

  double stage(int begin, int end, int replicas) const override;
  double cut(int boundary, int replicas, CutSide side) const override;
  bool fits(int begin, int end, int replicas, int later) const override;

  /// For SearchSpace::scan_replicas.
  int scan_replicas() const;

 private:
  /// Micro-batches of the busiest of q replicas, and the all-reduce over them as min(a0 + a1 W, b0 + b1 W).
  struct ByReplicas {
    double count = 1;
    double ring_fixed = 0, ring_per_byte = 0;
    double tree_fixed = 0, tree_per_byte = 0;
  };
  const ByReplicas& by(int replicas) const { return by_replicas_[static_cast<std::size_t>(replicas)]; }

  const Chain& chain_;
  LoadOptions options_;
  const StageMemory* memory_;
  int max_replicas_;
  double per_byte_ = 0;  ///< seconds a byte occupies the link
  std::vector<ByReplicas> by_replicas_;
  RecomputeTime recompute_;
};

/// Per boundary, what a cut there adds to a micro-batch's way: forward plus gradient transfer until the last
/// byte has arrived, and the fixed costs of one stage more.
std::vector<double> fill_times(const Chain& chain, const Link& link);

}  // namespace pp::plan

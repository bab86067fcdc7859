// PipeDream's optimizer (Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training",
// SOSP'19, sec. 3.1), flat or over any number of levels, in two versions of its costs: as released and as
// printed. One level of its recurrence is A(i, j, m), the best slowest stage of layers [i, j) on exactly m
// machines.
//
// Kept as they are: all-reduce is added to compute (code) with 4(m-1)/m of the weights; an outer boundary is
// charged at the bandwidth of the inner level when an inner pipeline ends there; the memory test counts no copy
// for the last stage, so any limit is met by pure data parallelism; activations are free unless charged. Ours:
// branching graphs are searched on six linear orders with live-set cuts instead of augmented antichains, whose
// two-level form joins intervals that are not nested.
#pragma once

#include <limits>
#include <vector>

#include "libplan/cost/stage_cost.h"
#include "libplan/peers/input.h"
#include "libplan/peers/interval_table.h"

namespace pp::plan {

/// Exact over the peer's plans on each layer order; both strategies search the same. Per order about O(layers^2
/// * devices^2 * log layers) for each level (interval_table.h), layers times less for the outermost.
std::variant<PeerPlan, Infeasible> plan_pipedream(const PeerInput& input, const PeerOptions& options);

class PipedreamLevel;

/// What stages of one level cost. `chain` and `options` outlive it, `inner` only its construction.
class PipedreamCost : public IntervalCost {
 public:
  PipedreamCost(const Chain& chain, const PeerOptions& options, std::size_t level, const PipedreamLevel* inner);

  /// One stage by itself, whatever the memory.
  double alone(int begin, int end, int machines) const;

  double whole(int begin, int end, int machines) const override;
  /// Without the division by the group size that the released code forgets behind a cut.
  double last(int begin, int end, int machines) const override;
  /// By the memory test: the machines behind a stage decide the copies it keeps.
  int least_used(int begin, int end, int machines) const override;

 private:
  double compute(int begin, int end) const;
  double spread(double compute, double reduce, int machines) const;
  double reduce(int begin, int end, int machines) const;
  double cuts(int begin, int end, int machines) const;
  std::size_t interval(int begin, int end) const;

  const Chain& chain_;
  const PeerOptions& options_;
  int layers_;
  int machines_;
  double bandwidth_;
  int group_ = 1;               ///< what the released code divides the all-reduce of a lone stage by
  std::vector<double> nested_;  ///< compute by end and begin; empty at the innermost level
};

class PipedreamLevel {
 public:
  /// `inner`: the level below, null for the innermost; its machines of this level are whole groups of it.
  /// Without `all_starts` only i = 0 is tabled, which is enough for the outermost level. Pipelines not faster
  /// than `bound` are left out. `chain`, `options` and `inner` outlive this.
  PipedreamLevel(const Chain& chain, const PeerOptions& options, std::size_t level, const PipedreamLevel* inner,
                 bool all_starts, double bound = std::numeric_limits<double>::infinity());

  /// Infinity: no plan on exactly `machines` machines, or none below the bound.
  double value(int begin, int end, int machines) const { return table_.value(begin, end, machines); }
  /// As the machines rule says: on all machines, or the best count.
  int machines_for(int begin, int end) const;
  double value(int begin, int end) const { return value(begin, end, machines_for(begin, end)); }
  int machines() const { return machines_; }

  /// Appends the stages of value(begin, end, machines), each replicated `copies` times more by the levels
  /// above.
  void collect(int begin, int end, int machines, int copies, Partition& stages) const;

  const PipedreamCost& cost() const { return cost_; }

 private:
  const PeerOptions& options_;
  const PipedreamLevel* inner_;
  int machines_;
  PipedreamCost cost_;
  IntervalTable table_;
};

}  // namespace pp::plan

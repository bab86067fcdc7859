// One level of PipeDream's recurrence: A(i, j, m), the best slowest stage of layers [i, j) on exactly m
// machines.
#pragma once

#include <limits>
#include <vector>

#include "libplan/cost/stage_cost.h"
#include "libplan/search/peers/input.h"

namespace pp::plan {

class PipedreamLevel {
 public:
  /// `inner`: the level below, null for the innermost; its machines of this level are whole groups of it.
  /// Without `all_starts` only i = 0 is tabled, which is enough for the outermost level. Stages and cuts above
  /// `bound` are left out. `chain`, `options` and `inner` outlive this.
  PipedreamLevel(const Chain& chain, const PeerOptions& options, std::size_t level, const PipedreamLevel* inner,
                 bool all_starts, double bound = std::numeric_limits<double>::infinity());

  /// Infinity: no plan on exactly so many machines, or none within the bound.
  double value(int begin, int end, int machines) const { return values_[index(begin, end) + at(machines)]; }
  /// As the machines rule says: on all machines, or the best count.
  int machines_for(int begin, int end) const;
  double value(int begin, int end) const { return value(begin, end, machines_for(begin, end)); }

  /// Appends the stages of value(begin, end, machines), each replicated `copies` times more by the levels
  /// above.
  void collect(int begin, int end, int machines, int copies, Partition& stages) const;

  /// One stage of the whole level: what a single stage on `machines` of it costs.
  double alone(int begin, int end, int machines) const;
  /// A stage of a pipeline: the same, without the division by the group size that the released code forgets
  /// there.
  double stage(int begin, int end, int machines) const;

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  std::size_t index(int begin, int end) const {
    return (at(begin) * at(layers_ + 1) + at(end)) * at(machines_ + 1);
  }
  double compute(int begin, int end) const;
  double spread(double compute, double reduce, int machines) const;
  double reduce(int begin, int end, int machines) const;
  double cuts(int begin, int end, int machines) const;
  int least_used(int begin, int end, int machines) const;
  void solve(int begin, int end);

  const Chain& chain_;
  const PeerOptions& options_;
  const PipedreamLevel* inner_;
  int layers_;
  int machines_;
  double bandwidth_;
  double bound_;
  std::vector<double> values_;
};

}  // namespace pp::plan

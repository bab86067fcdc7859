// Piper's plans (piper.h) by bisection over the largest load: for each limit the fewest devices and in-flight
// slots that run what is behind a cut, over all down-sets of the graph.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "libplan/cost/down_sets.h"

namespace pp::plan {

struct PiperPlanStage {
  std::vector<int> layers;  ///< ascending
  int replicas = 1;
  int degree = 0;  ///< position in PiperProblem::degrees
  bool operator==(const PiperPlanStage&) const = default;
};

struct PiperProblem {
  int devices = 1;
  int micro_batches = 1;  ///< of a batch: replicas of a stage divide them, those of all stages are no more
  std::vector<int> degrees{1};  ///< devices of one replica
  /// Per layer, device seconds: a stage on n devices has a load of at least the sum of its layers' work, over
  /// n.
  std::vector<double> work;
  /// The stage that the next loads are of; false: it does not run at this degree.
  std::function<bool(int degree, const std::vector<int>& layers)> take;
  /// On the side of `limit` where the load is, exact without one. Does not fall in `in_flight`.
  std::function<double(int replicas, int in_flight, std::optional<double> limit)> load;
};

struct PiperSolution {
  double value = std::numeric_limits<double>::infinity();
  std::vector<PiperPlanStage> stages;  ///< empty: nothing fits
};

/// Over `sets`, ascending from the empty to the full one. Among equals the fewest devices. A probe takes
/// O(pairs * (front * replicas + layers)); some 30 probes, as loads bound what the rest of the devices must do.
PiperSolution search_piper(const std::vector<LayerSet>& sets, const PiperProblem& problem);

}  // namespace pp::plan

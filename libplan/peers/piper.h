// The time-per-sample model of Piper (Tarnawski et al., "Piper: Multidimensional Planner for DNN
// Parallelization", NeurIPS'21, sec. 4 and 5). What Piper calls a sample is one micro-batch.
//
//   time(S, d, t) = ( sum p_v + 2 sum of c_e over edges that cross the border of S / bandwidth ) / d
//                   + 4 (d-1)/d sum w_v / (N bandwidth)          d replicas divide the N micro-batches of a
//                   batch
//   memory        = y sum A_v + sum B_v,   y = ceil(replicas of this and all later stages / d)
//
// t is the tensor-parallel degree: t devices run one replica together, p, A, B, w and c are those of one of
// them (PiperLayer), and the plan uses sum d t devices. A split layer is slower per device but keeps less, so
// that under a tight limit t > 1 wins. c_e holds what the sharing synchronises, at the end where it is done.
// Everything is added, every edge counts at both ends, fill and drain are left out. Each layer runs plain or
// recomputed; Piper takes the layers to recompute greedily by seconds per byte, `auto` chooses them exactly.
// A profile that is not imported from Piper's files knows t = 1: A is the saved bytes, or what the layer reads
// when it is recomputed (then p grows by the forward time), B the weights, gradients and buffers, c_e the
// output bytes.
// Plans by bisection over the largest load: for each limit the fewest devices and in-flight slots that run what
// is behind a cut, over all down-sets of the graph.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "libplan/peers/input.h"
#include "libplan/peers/set_search.h"
#include "libprofile/core/index.h"

namespace pp::plan {

/// Over all down-sets, as the peer's dynamic program; over the six orders where there are too many.
std::variant<PeerPlan, Infeasible> plan_piper(const PeerInput& input, const PeerOptions& options);

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

struct PiperEdge {
  int other = 0;     ///< the layer at the other end
  double bytes = 0;  ///< charged at this end where it crosses the border of a stage
};

/// One device's costs of a layer that `degree` devices run together.
struct PiperCosts {
  PiperVariant plain;
  std::optional<PiperVariant> recompute;
  double weights = 0;
  std::vector<PiperEdge> edges;  ///< to and from both kinds of neighbours
};

/// A layer that may be recomputed, with `in_flight` micro-batches.
struct PiperAgain {
  int layer = 0;
  double seconds = 0;  ///< what it costs
  double bytes = 0;    ///< what it saves, above 0
};

class PiperDegree {
 public:
  PiperDegree(const PeerInput& input, int degree);

  const std::optional<PiperCosts>& of(int layer) const { return costs_[at(layer)]; }
  /// Seconds per byte ascending, then bytes, then layers: the order in which Piper takes them. Not thread-safe.
  const std::vector<PiperAgain>& again(int in_flight) const;

  int degree = 1;

 private:
  std::vector<std::optional<PiperCosts>> costs_;  ///< nothing: the layer does not run at this degree
  mutable std::map<int, std::vector<PiperAgain>> again_;
};

/// 1 and every degree at which some layer runs, ascending.
std::vector<PiperDegree> piper_degrees(const PeerInput& input);

/// Sums over the layers of one stage at one degree. Both must outlive it.
class PiperStage {
 public:
  PiperStage(const PeerInput& input, const PeerOptions& options);

  /// False: a layer does not run at this degree.
  bool take(const PiperDegree& degree, const std::vector<int>& layers);

  /// Infinity: does not fit. For `automatic` below or above `limit` as the load is, but not more exact than
  /// that takes; exact without one.
  double load(int replicas, int in_flight, std::optional<double> limit) const;
  /// Bytes with everything recomputed that helps.
  double least_memory(int in_flight) const;

 private:
  double shared(double again, int replicas) const;
  double excess(int in_flight) const { return in_flight * saved_ + fixed_ - limit_; }
  double exactly(int in_flight) const;

  const PeerOptions& options_;
  double bandwidth_;
  double limit_;
  const PiperDegree* degree_ = nullptr;
  std::vector<char> inside_;
  std::vector<int> layers_;
  double seconds_ = 0, crossing_ = 0, weights_ = 0, saved_ = 0, fixed_ = 0;
};

}  // namespace pp::plan

// What layers cost in Piper's model (piper.h) at each tensor-parallel degree, and the sums of a stage.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "libplan/peers/input.h"
#include "libprofile/core/index.h"

namespace pp::plan {

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

/// A layer that may run again, with `in_flight` micro-batches.
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

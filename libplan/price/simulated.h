// What the simulator says of priced stages. Equal replicas on whole nodes do the same side by side: the
// simulator is given those of a few nodes, which stand for all.
#pragma once

#include <optional>
#include <vector>

#include "libplan/price/pricing.h"
#include "libplan/simulate/simulate.h"
#include "libprofile/core/cluster.h"

namespace pp::plan {

/// Micro-batches after which every replica of every stage has had equally many turns; of a stream, whole
/// updates, and of as many stages as a simulation affords (stream_round()).
int round_of(const Assignment& assignment);

/// Micro-batches of a stream to simulate for steady_period(): at least 20 turns per stage, in thirds of whole
/// rounds that are no shorter than fill and drain, unless that is more than the simulator should be given.
int steady_length(const Assignment& assignment);

/// The simulator's input for one step; streams are expanded to `micro_batches` of them.
SimulationInput make_input(const PricedStages& priced, const Assignment& assignment, const Cluster& cluster,
                           const MicroBatchScale& scale, double all_reduce_overlap, int micro_batches);

/// Prediction::step of a synchronous assignment alone, in a third of the time. `scale`: of its micro-batches,
/// which may be a part of the context's.
Seconds simulated_step(const PricedStages& priced, const Assignment& assignment, const PricingContext& context,
                       const MicroBatchScale& scale);

/// Step time, busy times, memory and traffic by the simulator. Streams run long enough for a steady period.
/// Throws pp::Error (data) on a deadlock.
Prediction simulate_prediction(const PricedStages& priced, const Assignment& assignment,
                               const PricingContext& context, const MicroBatchScale& scale);
inline Prediction simulate_prediction(const PricedStages& priced, const Assignment& assignment,
                                      const PricingContext& context) {
  return simulate_prediction(priced, assignment, context, context.model.scale);
}

/// Those of equal replicas that are simulated, ascending; all where that would be no fewer.
/// Micro-batches go round robin, so the first replicas may have one more: of the nodes whose replicas all have
/// it, of those whose have not, and of the one between them one each, two at least. Without nodes a replica is
/// one.
std::vector<int> kept_lanes(int replicas, int micro_batches, const Cluster& cluster);

struct Lanes {
  Assignment few;               ///< of the kept replicas alone, their micro-batches numbered anew
  std::vector<int> stands_for;  ///< per worker of the whole, the worker of `few` that does the same
};

/// Nothing where fewer would be no less, or replicas may not do the same: unequal numbers of them, stages that
/// share a node, more than two levels, streams. Micro-batches must be equal. O(operations).
std::optional<Lanes> few_lanes(const Assignment& whole, const Cluster& cluster);

}  // namespace pp::plan

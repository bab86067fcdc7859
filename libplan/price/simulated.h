// What the simulator says of priced stages.
#pragma once

#include <vector>

#include "libplan/price/pricing.h"
#include "libplan/simulate/simulate.h"

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

}  // namespace pp::plan

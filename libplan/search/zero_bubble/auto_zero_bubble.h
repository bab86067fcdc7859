// The automatic zero-bubble schedule: the best order of F, I and W for a straight pipeline of one stage per
// worker, searched for with its real times, transfers and limits. After Qi et al., "Zero Bubble Pipeline
// Parallelism" (ICLR 2024), section 3; the search itself is ours: bounds, a rule that contains ZB-H1 and ZB-H2,
// list scheduling, then local search along critical paths.
#pragma once

#include <string>

#include "libplan/search/zero_bubble/room.h"

namespace pp::plan {

struct ZeroBubbleResult {
  ProgramSet programs;
  /// Of chained steps: chained_period(), or period_bound where that is larger (T(3) - T(2) can miss it as long
  /// as another worker than the busiest ends last).
  Seconds period{};
  Seconds makespan{};  ///< of one isolated step, as simulate()
  /// No order of this pipeline within the limits is shorter; equal to the figure above: the figure is optimal.
  Seconds period_bound{};
  Seconds makespan_bound{};
  std::string how;  ///< where the order comes from, for people: `greedy, then improved`
};

/// What is guaranteed, to the rounding of sums (36 bits). Let the hand-written orders be ZB-H1, ZB-H2 and 1F1B
/// with I and W in place of B, as far as they respect the limits. The result's period is at most that of each
/// of them, and if it is equal to the least, the makespan is at most that of those which reach it. If any order
/// found reaches the least period and the least makespan of the hand-written ones both, the result does so too.
/// All of them are candidates and every candidate is priced by the simulator, with ports. The limits hold, the
/// programs pass validate(), and on every stage F, I and W run micro-batches 0..M-1 in this order, so gradients
/// are bit-equal to those of 1F1B.
///
/// Orders are ranked by period, then makespan. The same request gives the same result. O(evaluations * stages *
/// micro-batches). Throws what make_rooms() throws.
ZeroBubbleResult search_zero_bubble(const ZeroBubbleRequest& request);

}  // namespace pp::plan

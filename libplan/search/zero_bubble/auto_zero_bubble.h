// The automatic zero-bubble schedule: the best order of F, I and W for a straight pipeline of one stage per
// worker, searched for with its real times, transfers and limits. After Qi et al., "Zero Bubble Pipeline
// Parallelism" (ICLR 2024), section 3; the search itself is ours: bounds, a rule that contains ZB-H1 and ZB-H2,
// list scheduling, then local search along critical paths.
#pragma once

#include <compare>
#include <string>

#include "libplan/search/zero_bubble/clock.h"

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
  std::string how;  ///< where the order comes from, for people: `greedy, improved`
};

/// Guaranteed, to the rounding of sums (36 bits): let the hand-written orders be ZB-H1, ZB-H2 and 1F1B with I
/// and W in place of B, those of them that respect the limits.
/// - The period is at most that of each of them. The makespan is at most that of each with the same period.
/// - If one of them has both the least period and the least makespan, the result is at most both; likewise if
///   any order that the simulator prices is. Such orders win over a shorter period with a longer makespan.
/// - The programs pass validate() and hold no more than the limits. On every stage F, I and W run micro-batches
///   0..M-1 in this order, so gradients are bit-equal to those of 1F1B.
/// The hand-written orders are candidates, and the simulator prices every candidate. Beyond that orders rank by
/// period, then makespan. The same request gives the same result.
///
/// O((evaluations + a few hundred) * stages * micro-batches). Throws what make_rooms() and simulate() throw.
ZeroBubbleResult search_zero_bubble(const ZeroBubbleRequest& request);

/// What orders are compared with, in seconds. Figures below the bound count as the bound: nothing lasts
/// shorter.
struct Goal {
  double period = 0;                                                ///< bound
  double makespan = 0;                                              ///< bound
  double period_limit = std::numeric_limits<double>::infinity();    ///< least among the hand-written orders
  double makespan_limit = std::numeric_limits<double>::infinity();  ///< likewise
};

/// Smaller is better, member by member.
struct Score {
  double excess = 0;  ///< how far above the limits of the goal, relative, both added
  double period = 0;
  double makespan = 0;
  double ends = 0;  ///< OrderTimes::ends: leads across the plateaus of the others
  auto operator<=>(const Score&) const = default;
};

/// The last 17 of 53 bits of the times do not count, so that the order of sums decides nothing.
Score score(const OrderTimes& times, const Goal& goal);
/// Both figures are at their bounds: no order is better.
bool is_optimal(const Score& score, const Goal& goal);

/// Moves operations of one worker past others, where the critical path runs, and keeps what is not worse; tries
/// at most `evaluations` moves, fewer once is_optimal(). `order` is valid for `rooms` and does not deadlock; so
/// is the result. Deterministic. O(evaluations * operations).
Order improve(Order order, OrderClock& clock, const std::vector<Room>& rooms, const Goal& goal,
              int evaluations);

}  // namespace pp::plan

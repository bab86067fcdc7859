// Local search on zero-bubble orders, and how two orders compare.
#pragma once

#include <compare>

#include "libplan/search/zero_bubble/clock.h"

namespace pp::plan {

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

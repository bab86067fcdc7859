// List scheduling for zero-bubble orders: plays one step in time and decides at each worker what to run next,
// knowing what is on its way.
#pragma once

#include <vector>

#include "libplan/search/zero_bubble/pipeline.h"

namespace pp::plan {

/// How a worker chooses when several operations could run.
struct GreedyRule {
  /// Per worker: most micro-batches between F and I. At least 1.
  std::vector<int> windows;
  /// Per worker: a W runs before anything else when more than this many are due.
  std::vector<int> backlogs;
  /// Otherwise W fills gaps: it runs when at least this share of it fits before the next known arrival. 0: W
  /// never waits; 1: W delays nothing.
  double fitting_share = 1;
  /// When both could start: I, which serves the workers before, or F, which serves those behind.
  bool inputs_first = false;
};

/// Valid for `rooms`, and never deadlocks: it is the record of a run. O(operations * workers).
Order schedule_greedily(const Pipeline& pipeline, const std::vector<Room>& rooms, const GreedyRule& rule);

}  // namespace pp::plan
